"""``kernel_config.json``: what a bundle offers, readable without our code. The schema is in docs/bundle.md."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from autotune import Key
from compile_hlo.directions import ArgumentDirection, Direction, KernelSignature
from lang_core import Argument, InputError, TapelineError, TensorSpec
from tapeline.bundle._debug import DebugConfig

SCHEMA: Final = 1

_NOT_RECORDED: Final = "the version that wrote this bundle did not record it"


@dataclass(frozen=True, slots=True)
class ArgumentConfig:
    """An argument of an entry point.

    Attributes:
        name: unique among the arguments.
        kind: a scalar is passed as a number.
        direction: as declared: IN, or INOUT where a result takes over its buffer (it is then donated).
        dtype: the element type's name.
        shape: empty for a scalar.
        alias_result: the result that takes over its buffer.
        donated: the buffer is gone after the call.
        effective: what the program does with the buffer: IN, OUT, INOUT; None where it was not recorded.
        in_place: the result named by ``alias_result`` is an update of the argument and lies in its buffer; else it
            has one of its own.
        bounds: the least and the greatest number that it may hold; sessions refuse others.
        guarded: the compiled code may write into the buffer although it is not donated: sessions pass a copy.
    """

    name: str
    kind: Literal["tensor", "scalar"]
    direction: str
    dtype: str
    shape: list[int]
    alias_result: str | None = None
    donated: bool = False
    effective: str | None = None
    guarded: bool = True
    in_place: bool = True
    bounds: list[int] | None = None

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec(tuple(self.shape), self.dtype)


@dataclass(frozen=True, slots=True)
class ResultConfig:
    """A result: ``direction`` is OUT, or INOUT where it takes over an argument's buffer."""

    name: str
    direction: str
    dtype: str
    shape: list[int]
    alias_arg: str | None = None

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec(tuple(self.shape), self.dtype)


@dataclass(frozen=True, slots=True)
class EntryPointConfig:
    """A function of the module."""

    name: str
    args: list[ArgumentConfig]
    results: list[ResultConfig]


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

    entry_points: list[EntryPointConfig]
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
        """The file's text."""
        return json.dumps(asdict(self), indent=2) + "\n"

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
            entry_points = [_entry_point(each) for each in fields.pop("entry_points")]
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


def _entry_point(fields: Mapping[str, Any]) -> EntryPointConfig:
    args = [ArgumentConfig(**each) for each in fields["args"]]
    results = [ResultConfig(**each) for each in fields["results"]]
    for each in (*args, *results):
        _ = each.spec  # raises where shape or dtype is damaged
    names = {each.name for each in results}
    for each in args:
        least, most = each.bounds or (0, 0)  # raises where they are damaged
        _ = least <= most
        if each.alias_result is not None and each.alias_result not in names:
            raise KeyError(each.alias_result)
    return EntryPointConfig(fields["name"], args, results)


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
            {"kind": each.kind, **_spec(each.spec), "direction": each.declared, "effective": each.effective}
            for each in kernel.arguments
        ],
        results=[
            {**_spec(each.spec), "direction": each.direction, "alias_arg": each.alias_arg} for each in kernel.results
        ],
    )


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"dtype": spec.dtype.name, "shape": list(spec.shape)}


def entry_point_config(
    name: str,
    arguments: Sequence[Argument],
    results: Mapping[str, TensorSpec],
    directions: Sequence[ArgumentDirection],
) -> EntryPointConfig:
    """Describes an entry point: its arguments as declared, its results and directions as lowered."""
    known = {each.name: each for each in directions}
    takes_over = {argument.alias_result: argument.name for argument in arguments if argument.alias_result}
    return EntryPointConfig(
        name,
        [
            ArgumentConfig(
                name=argument.name,
                kind=argument.kind,
                direction="INOUT" if argument.alias_result else "IN",
                dtype=argument.spec.dtype.name,
                shape=list(argument.spec.shape),
                alias_result=argument.alias_result,
                donated=argument.alias_result is not None,
                effective=known[argument.name].effective if argument.name in known else "IN",
                guarded=argument.name in known and known[argument.name].guarded,
                in_place=argument.name in known and known[argument.name].in_place,
                bounds=None if argument.bounds is None else list(argument.bounds),
            )
            for argument in arguments
        ],
        [
            ResultConfig(
                name=result,
                direction="INOUT" if result in takes_over else "OUT",
                dtype=spec.dtype.name,
                shape=list(spec.shape),
                alias_arg=takes_over.get(result),
            )
            for result, spec in results.items()
        ],
    )
