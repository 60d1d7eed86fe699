"""``kernel_config.json``: what a bundle offers, readable without our code. The schema is in docs/bundle.md."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from autotune import Key
from compile_hlo.directions import Direction, KernelSignature, LoweredArgument, LoweredResult, Signature
from lang_core import InputError, TapelineError, TensorSpec
from tapeline.bundle._debug import DebugConfig

SCHEMA: Final = 1

_NOT_RECORDED: Final = "the version that wrote this bundle did not record it"


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A private block function.

    Attributes:
        name: its symbol in module.mlir.
        call_sites: how often it is called.
        signature: the effective directions of its tensor arguments, in the order of the text; scalars, which come
            after them, are left out. None where it was not recorded.
        reason: why there is no signature; None where there is one.
        arguments: in the order of the text: ``kind``, ``dtype``, ``shape``, ``direction`` (as declared: INOUT where a
            call site passes a donated argument), ``effective``.
        results: ``direction``, ``dtype``, ``shape``, ``alias_arg`` (the place of the argument that it takes over).
    """

    name: str
    call_sites: int
    signature: list[str] | None = None
    reason: str | None = None
    arguments: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """The whole file.

    Attributes:
        entry_points: the functions.
        kernels: the private block functions.
        parameters: the weights by path: dtype and shape, in the order in which ``module.vhlo`` takes them.
        targets: per target its file, flags and CPU.
        model: family, sizes, RoPE layout and scaling, tied weights.
        producer: versions of what made the bundle.
        sha256: of every other file but the report.
        debug: the debug module; None where the bundle was exported without ``--dump_tags``.
        kernel_calls: which configuration each call of a kernel has, and why; empty without ``--kernels``.
        schema: the version of this file's form.
    """

    entry_points: list[Signature]
    kernels: list[KernelRecord] = field(default_factory=list)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: dict[str, dict[str, Any]] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    debug: DebugConfig | None = None
    kernel_calls: list[dict[str, Any]] = field(default_factory=list)
    schema: int = SCHEMA

    def text(self) -> str:
        """Returns the file's text."""
        fields = asdict(replace(self, entry_points=[]))
        fields["entry_points"] = [signature_fields(signature) for signature in self.entry_points]
        return json.dumps(fields, indent=2) + "\n"

    def write(self, path: Path) -> None:
        """Writes the file."""
        path.write_text(self.text())

    @classmethod
    def read(cls, path: Path) -> "KernelConfig":
        """Reads the file.

        Raises:
            InputError: it is missing, damaged or of another schema.
        """
        try:
            fields = json.loads(path.read_text())
        except FileNotFoundError:
            raise InputError(f"{path.parent} is no bundle: it has no {path.name}: run tools:export first") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}): export the bundle again") from None
        if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
            found = fields.get("schema") if isinstance(fields, dict) else type(fields).__name__
            raise InputError(f"{path}: schema {found!r}, this version reads schema {SCHEMA}: export the bundle again")
        try:
            entry_points = [_signature(each) for each in fields.pop("entry_points")]
            kernels = [_kernel(each) for each in fields.pop("kernels", [])]
            for name in ("parameters", "targets", "model", "producer", "sha256"):
                if not isinstance(fields.get(name), dict):
                    raise TypeError(f"{name} is no object")
            _check_parts(fields)
            debug = fields.pop("debug", None)
            debug = None if debug is None else DebugConfig.from_json(debug)
            return cls(entry_points=entry_points, kernels=kernels, debug=debug, **fields)
        except (AttributeError, KeyError, TypeError, TapelineError) as error:
            raise InputError(f"{path}: damaged ({error}): export the bundle again") from None


def _check_parts(fields: Mapping[str, Any]) -> None:
    """Raises where parameters or targets are not of the schema's form."""
    for each in fields["parameters"].values():
        _ = TensorSpec(tuple(each["shape"]), each["dtype"])
    for each in fields["targets"].values():
        _ = each.items()
    for each in fields.get("kernel_calls", []):
        _ = Key(*each["key"]), each["provenance"]


def signature_fields(signature: Signature) -> dict[str, Any]:
    """Returns an entry point as the file has it."""
    taken_over = signature.taken_over
    return {
        "name": signature.name,
        "args": [_argument_fields(argument) for argument in signature.arguments],
        "results": [
            {
                "name": result.name,
                "direction": "INOUT" if result.name in taken_over else "OUT",
                **_spec_fields(result.spec),
                "alias_arg": taken_over.get(result.name),
            }
            for result in signature.results
        ],
    }


def _argument_fields(argument: LoweredArgument) -> dict[str, Any]:
    return {
        "name": argument.name,
        "kind": argument.kind,
        "direction": argument.declared,
        **_spec_fields(argument.spec),
        "alias_result": argument.alias_result,
        "donated": argument.donated,
        "effective": argument.effective,
        "guarded": argument.guarded,
        "in_place": argument.in_place,
        "bounds": None if argument.bounds is None else list(argument.bounds),
    }


def _spec_fields(spec: TensorSpec) -> dict[str, Any]:
    return {"dtype": spec.dtype.name, "shape": list(spec.shape)}


def _signature(fields: Mapping[str, Any]) -> Signature:
    """Reads an entry point; a damaged one raises TypeError, KeyError or TapelineError."""
    arguments = tuple(_argument(**entry) for entry in fields["args"])
    results = tuple(_result(**entry) for entry in fields["results"])
    names = {result.name for result in results}
    for argument in arguments:
        if argument.alias_result is not None and argument.alias_result not in names:
            raise KeyError(argument.alias_result)
    return Signature(fields["name"], arguments, results)


def _argument(
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
) -> LoweredArgument:
    """Reads an argument; bundles of earlier versions lack some of the fields, and are treated with caution."""
    spec = TensorSpec(tuple(shape), dtype)
    if donated != (alias_result is not None):
        raise TypeError(
            f"argument {name!r}: donated is {donated}, alias_result {alias_result!r}, direction {direction}"
        )
    if bounds is None:
        return LoweredArgument(name, spec, kind, alias_result, effective, guarded, in_place)
    least, most = bounds
    _ = least <= most  # raises TypeError where they are no numbers
    return LoweredArgument(name, spec, kind, alias_result, effective, guarded, in_place, (least, most))


def _result(
    *, name: str, direction: str, dtype: str, shape: Sequence[int], alias_arg: str | None = None
) -> LoweredResult:
    """Reads a result; its direction and alias follow from the arguments."""
    del direction, alias_arg
    return LoweredResult(name, TensorSpec(tuple(shape), dtype))


def _kernel(fields: Mapping[str, Any]) -> KernelRecord:
    _ = fields["name"], int(fields["call_sites"])
    kernel = KernelRecord(**fields)
    if kernel.signature is None and kernel.reason is None:
        return replace(kernel, reason=_NOT_RECORDED)
    for direction in kernel.signature or ():
        if direction not in get_args(Direction):
            raise TypeError(f"kernel {kernel.name!r}: direction {direction!r}")
    return kernel


def kernel_record(kernel: KernelSignature) -> KernelRecord:
    """Describes a private block function."""
    return KernelRecord(
        kernel.name,
        kernel.call_sites,
        list(kernel.signature),
        arguments=[
            {"kind": each.kind, **_spec_fields(each.spec), "direction": each.declared, "effective": each.effective}
            for each in kernel.arguments
        ],
        results=[
            {**_spec_fields(each.spec), "direction": each.direction, "alias_arg": each.alias_arg}
            for each in kernel.results
        ],
    )
