"""``kernel_config.json``, the description of a bundle, readable without our code. docs/bundle.md has the schema."""

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
    """Private block function.

    Attributes:
        name: symbol in module.mlir.
        call_sites: number of calls in the text.
        signature: effective directions of its tensor arguments, in the order of the text, without the scalars after
            them. None where it was not recorded.
        reason: why there is no signature; None where there is one.
        arguments: arguments in the order of the text: ``kind``, ``dtype``, ``shape``, ``direction`` (as declared: INOUT
            where a call site passes a donated argument), ``effective``.
        results: ``direction``, ``dtype``, ``shape``, ``alias_arg`` (number of the argument that it takes over).
    """

    name: str
    call_sites: int
    signature: list[str] | None = None
    reason: str | None = None
    arguments: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """Contents of the file.

    Attributes:
        entry_points: signatures of the public functions.
        kernels: private block functions.
        parameters: dtype and shape of the weights by path, in the order in which ``module.vhlo`` takes them.
        targets: file, flags and CPU by target.
        model: family, sizes, RoPE layout and scaling, tied weights.
        producer: versions of the software that made the bundle.
        sha256: hashes of all other files but the report.
        debug: debug module; None where the bundle was exported without the option ``dump_tags``.
        kernel_calls: configuration of each call of a kernel and where it comes from; empty without ``kernels``.
        schema: version of the file's schema.
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
            InputError: the file is missing, damaged or of another schema.
        """
        try:
            fields = json.loads(path.read_text())
        except FileNotFoundError:
            raise InputError(f"{path.parent} is not a bundle: it has no {path.name}: export one first") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}): export the bundle again") from None
        if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
            actual = fields.get("schema") if isinstance(fields, dict) else type(fields).__name__
            raise InputError(f"{path}: schema {actual!r}, this version reads schema {SCHEMA}: export the bundle again")
        try:
            entry_points = [_signature(entry) for entry in fields.pop("entry_points")]
            kernels = [_kernel(entry) for entry in fields.pop("kernels", [])]
            for name in ("parameters", "targets", "model", "producer", "sha256"):
                if not isinstance(fields.get(name), dict):
                    raise TypeError(f"{name} is not an object")
            _check_parts(fields)
            debug = fields.pop("debug", None)
            debug = None if debug is None else DebugConfig.from_json(debug)
            return cls(entry_points=entry_points, kernels=kernels, debug=debug, **fields)
        except (AttributeError, KeyError, TypeError, TapelineError) as error:
            raise InputError(f"{path}: damaged ({error}): export the bundle again") from None


def _check_parts(fields: Mapping[str, Any]) -> None:
    """Raises an error where parameters, targets or calls of kernels do not follow the schema."""
    for parameter in fields["parameters"].values():
        _ = TensorSpec(tuple(parameter["shape"]), parameter["dtype"])
    for target in fields["targets"].values():
        _ = target.items()
    for call in fields.get("kernel_calls", []):
        _ = Key(*call["key"]), call["provenance"]


def signature_fields(signature: Signature) -> dict[str, Any]:
    """Returns the fields of an entry point in the file."""
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
            {
                "kind": argument.kind,
                **_spec_fields(argument.spec),
                "direction": argument.declared,
                "effective": argument.effective,
            }
            for argument in kernel.arguments
        ],
        results=[
            {**_spec_fields(result.spec), "direction": result.direction, "alias_arg": result.alias_arg}
            for result in kernel.results
        ],
    )
