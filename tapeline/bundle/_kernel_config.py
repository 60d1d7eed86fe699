"""``kernel_config.json``, the description of a bundle, readable without our code. docs/bundle.md has the schema."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from autotune import Key
from compile_hlo.directions import Direction, LoweredArgument, LoweredResult, Signature
from lang_core import LARGE_JSON_BOUNDS, Axes, DescriptionError, InputError, TapelineError, file_json, json_value
from tapeline.bundle._debug import DebugConfig
from tapeline.bundle._description import check_seals, seals_of
from tapeline.bundle._field_values import check_bounds, check_values, spec_of
from tapeline.bundle._json_text import Entries, indented_pieces
from tapeline.bundle._kernels import KernelRecord, read_kernels, spec_fields
from tapeline.bundle._mesh import MeshTable, check_table

SCHEMA: Final = 2
_READ: Final = (1, SCHEMA)


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """Contents of the file.

    Attributes:
        entry_points: signatures of the public functions.
        kernels: private functions: blocks, then helper functions.
        parameters: dtype and shape of the weights by path, in the order in which ``module.vhlo`` takes them.
        targets: file, flags and CPU by target.
        model: family, sizes, RoPE layout and scaling, tied weights.
        producer: versions of the software that made the bundle.
        sha256: hashes of all other files but the report.
        debug: debug module; None if the bundle was exported without the option ``dump_tags``.
        kernel_calls: configuration of each call of a kernel and its source; empty without ``kernels``.
        mesh: axes that cut the parameters; None if the bundle was exported without the option ``mesh``.
        schema: version of the file's schema as it was read; written files have the newest.
    """

    entry_points: list[Signature]
    kernels: list[KernelRecord] = field(default_factory=list)
    parameters: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    targets: dict[str, dict[str, Any]] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    debug: DebugConfig | None = None
    kernel_calls: list[dict[str, Any]] = field(default_factory=list)
    mesh: MeshTable | None = None
    schema: int = SCHEMA

    def text(self) -> str:
        """Returns the file's text."""
        return "".join(self.pieces())

    def pieces(self) -> Iterator[str]:
        """Yields the file's text; objects with an entry per layer are made as they are written."""
        fields = asdict(replace(self, entry_points=[], parameters={}, mesh=None, schema=SCHEMA))
        if self.mesh is None:
            del fields["mesh"]
        else:
            fields["mesh"] = self.mesh.fields()
        fields["entry_points"] = Entries(lambda: map(_lazy_signature, self.entry_points))
        fields["parameters"] = self.parameters
        rest = {name: value for name, value in fields.items() if name not in ("entry_points", "kernels", "parameters")}
        # As a reader gets it: keys that are strings, lists for tuples.
        rest = json_value(json.dumps(rest), LARGE_JSON_BOUNDS, nonfinite=True)
        sealed = {"entry_points": map(_lazy_signature, self.entry_points), "kernels": fields["kernels"]}
        fields["seals"] = seals_of({**sealed, **rest, "parameters": fields["parameters"]})
        yield from indented_pieces(fields)
        yield "\n"

    def write(self, path: Path) -> None:
        """Writes the file."""
        with path.open("w", encoding="utf-8") as file:
            file.writelines(self.pieces())

    @classmethod
    def read(cls, path: Path) -> "KernelConfig":
        """Reads the file.

        Raises:
            DescriptionError: it contradicts itself, or was edited.
            InputError: the file is missing, damaged or of another schema.
        """
        try:
            fields = file_json(path, LARGE_JSON_BOUNDS, nonfinite=True, unique=True)
        except FileNotFoundError:
            if not path.parent.exists():
                raise InputError(
                    f"{path.parent}: there is no such directory: give the directory of a bundle, which export writes"
                ) from None
            advice = f"it holds a model: write a bundle of it with `tapeline export {path.parent}`"
            named = advice if (path.parent / "config.json").is_file() else "export one first"
            raise InputError(f"{path.parent} is not a bundle: it has no {path.name}: {named}") from None
        except NotADirectoryError:
            raise InputError(
                f"bundle={path.parent}: it is a file, and a bundle is a directory: give a model's file as `model`"
            ) from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}): export the bundle again") from None
        schema = fields.get("schema") if isinstance(fields, dict) else type(fields).__name__
        if schema not in _READ:
            raise InputError(
                f"{path}: schema {schema!r}, this version reads schema {' and '.join(map(str, _READ))}: export the "
                f"bundle again"
            )
        try:
            sealed = dict(fields) if schema == SCHEMA else {}
            fields.pop("seals", None)
            entry_points = [_signature(entry) for entry in fields.pop("entry_points")]
            kernels = read_kernels(fields.pop("kernels", []), schema)
            for name in ("parameters", "targets", "model", "producer", "sha256"):
                if not isinstance(fields.get(name), dict):
                    raise TypeError(f"{name} is not an object")
            check_values(fields)
            _check_parts(fields)
            debug = fields.pop("debug", None)
            debug = None if debug is None else DebugConfig.from_json(debug)
            check_seals(sealed)
            mesh = fields.pop("mesh", None)
            mesh = None if mesh is None else MeshTable.from_json(mesh)
            check_table(mesh, entry_points, fields["parameters"])
            return cls(entry_points=entry_points, kernels=kernels, debug=debug, mesh=mesh, **fields)
        except DescriptionError as error:
            raise DescriptionError(f"{path}: {error}: export the bundle again") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, TapelineError) as error:
            raise InputError(f"{path}: damaged ({error}): export the bundle again") from None


def _check_parts(fields: Mapping[str, Any]) -> None:
    """Raises an error if parameters, targets or calls of kernels do not follow the schema."""
    for parameter in fields["parameters"].values():
        _ = spec_of(parameter)
    for target in fields["targets"].values():
        _ = target.items()
    for call in fields.get("kernel_calls", []):
        _ = Key(*call["key"]), call["provenance"]


def signature_fields(signature: Signature) -> dict[str, Any]:
    """Returns the fields of an entry point in the file."""
    return {
        name: list(entries.make()) if isinstance(entries, Entries) else entries
        for name, entries in _lazy_signature(signature).items()
    }


def _lazy_signature(signature: Signature) -> dict[str, Any]:
    """Returns the fields of an entry point; those of arguments, results and parameters are made as they are written."""
    arguments, reads = signature.arguments, signature.parameters
    return {
        "name": signature.name,
        "args": Entries(lambda: map(_argument_fields, arguments)),
        "results": Entries(lambda: _results_fields(signature)),
        **({} if reads is None else {"parameters": Entries(lambda: reads)}),
    }


def _results_fields(signature: Signature) -> Iterator[dict[str, Any]]:
    taken_over = signature.taken_over
    for result in signature.results:
        yield {
            "name": result.name,
            "direction": "INOUT" if result.name in taken_over else "OUT",
            **spec_fields(result.spec),
            "alias_arg": taken_over.get(result.name),
            **_axes_fields(result.axes),
        }


def _argument_fields(argument: LoweredArgument) -> dict[str, Any]:
    return {
        "name": argument.name,
        "kind": argument.kind,
        "direction": argument.declared,
        **spec_fields(argument.spec),
        "alias_result": argument.alias_result,
        "donated": argument.donated,
        "effective": argument.effective,
        "guarded": argument.guarded,
        "in_place": argument.in_place,
        "bounds": None if argument.bounds is None else list(argument.bounds),
        **_axes_fields(argument.axes),
    }


def _axes_fields(axes: Axes | None) -> dict[str, Any]:
    return {} if axes is None else {"axes": list(axes)}


def _signature(fields: Mapping[str, Any]) -> Signature:
    """Reads an entry point.

    Raises:
        DescriptionError: it contradicts itself.
        TypeError: a field is damaged; also KeyError or TapelineError.
    """
    name = fields["name"]
    if not isinstance(name, str):
        raise TypeError(f"entry point {name!r:.80}: expected a name")
    arguments = tuple(_argument(name, **entry) for entry in fields["args"])
    results = tuple(_result(**entry) for entry in fields["results"])
    reads = fields.get("parameters")
    signature = Signature(name, arguments, results, None if reads is None else tuple(reads))
    names = {result.name for result in results}
    taken: dict[str, str] = {}
    for argument in arguments:
        if argument.alias_result is None:
            continue
        if argument.alias_result not in names:
            raise KeyError(argument.alias_result)
        if argument.alias_result in taken:
            raise DescriptionError(
                f"entry point {name!r}: arguments {taken[argument.alias_result]!r} and {argument.name!r} have the same "
                f"alias_result, {argument.alias_result!r}: a result takes over one buffer"
            )
        taken[argument.alias_result] = argument.name
    for entry, described in zip(fields["results"], signature_fields(signature)["results"], strict=True):
        for key in ("direction", "alias_arg"):
            if key in entry and entry[key] != described[key]:
                raise DescriptionError(
                    f"entry point {name!r}: result {entry['name']!r}: {key} is {entry[key]}, the arguments' aliases "
                    f"make it {described[key]}"
                )
    return signature


def _argument(
    entry_point: str,
    *,
    name: str,
    kind: Literal["tensor", "scalar"],
    direction: str,
    dtype: str,
    shape: Sequence[int],
    alias_result: str | None = None,
    donated: bool = False,
    effective: Direction | None = None,
    guarded: bool = True,
    in_place: bool = True,
    bounds: Sequence[int] | None = None,
    axes: Sequence[str | None] | None = None,
) -> LoweredArgument:
    """Reads an argument; bundles of earlier versions lack some of the fields, and are treated with caution."""
    spec, cut = spec_of({"shape": shape, "dtype": dtype}), None if axes is None else tuple(axes)
    argument = LoweredArgument(name, spec, kind, alias_result, effective, guarded, in_place, axes=cut)
    if (donated, direction) != (argument.donated, argument.declared):
        raise DescriptionError(
            f"entry point {entry_point!r}: argument {name!r} has direction {direction}, donated {donated} and "
            f"alias_result {alias_result!r}: an argument is INOUT and donated exactly where a result takes it over"
        )
    if bounds is None:
        return argument
    return replace(argument, bounds=check_bounds(bounds, name))


def _result(
    *,
    name: str,
    direction: str,
    dtype: str,
    shape: Sequence[int],
    alias_arg: str | None = None,
    axes: Sequence[str | None] | None = None,
) -> LoweredResult:
    """Reads a result; its direction and alias follow from the arguments."""
    del direction, alias_arg
    return LoweredResult(name, spec_of({"shape": shape, "dtype": dtype}), None if axes is None else tuple(axes))
