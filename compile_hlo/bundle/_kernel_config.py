"""``kernel_config.json``: what a bundle offers, readable without our code. The schema is in docs/bundle.md."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from lang_core import Argument, InputError, TapelineError, TensorSpec

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class ArgumentConfig:
    """An argument: ``direction`` is IN, or INOUT where a result takes over its buffer (it is then donated)."""

    name: str
    kind: Literal["tensor", "scalar"]
    direction: str
    dtype: str
    shape: list[int]
    alias_result: str | None = None
    donated: bool = False

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
class KernelConfig:
    """The whole file.

    Attributes:
        entry_points: the functions.
        kernels: private block functions: name, call sites, and signature, which is None: directions of their
            arguments are not computed yet.
        parameters: the weights by path: dtype and shape, in the order in which ``module.vhlo`` takes them.
        targets: per target its file, flags and CPU.
        model: family, sizes, RoPE layout and scaling, tied weights.
        producer: versions of what made the bundle.
        sha256: of every other file but the report.
        schema: the version of this file's form.
    """

    entry_points: list[EntryPointConfig]
    kernels: list[dict[str, Any]] = field(default_factory=list)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: dict[str, dict[str, Any]] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    producer: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def write(self, path: Path) -> None:
        """Writes the file."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

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
            for name in ("parameters", "targets", "model", "producer", "sha256"):
                if not isinstance(fields.get(name), dict):
                    raise TypeError(f"{name} is no object")
            _check_parts(fields)
            return cls(entry_points=entry_points, **fields)
        except (AttributeError, KeyError, TypeError, TapelineError) as error:
            raise InputError(f"{path}: damaged ({error}): export the bundle again") from None


def _check_parts(fields: Mapping[str, Any]) -> None:
    """Raises where parameters, targets or kernels are not of the schema's form."""
    for each in fields["parameters"].values():
        _ = TensorSpec(tuple(each["shape"]), each["dtype"])
    for each in (*fields["targets"].values(), *fields["kernels"]):
        _ = each.items()
    for each in fields["kernels"]:
        _ = each["name"], int(each["call_sites"])


def _entry_point(fields: Mapping[str, Any]) -> EntryPointConfig:
    args = [ArgumentConfig(**each) for each in fields["args"]]
    results = [ResultConfig(**each) for each in fields["results"]]
    for each in (*args, *results):
        _ = each.spec  # raises where shape or dtype is damaged
    names = {each.name for each in results}
    for each in args:
        if each.alias_result is not None and each.alias_result not in names:
            raise KeyError(each.alias_result)
    return EntryPointConfig(fields["name"], args, results)


def entry_point_config(name: str, arguments: Sequence[Argument], results: Mapping[str, TensorSpec]) -> EntryPointConfig:
    """Describes an entry point: its arguments as declared, its results as lowered."""
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
