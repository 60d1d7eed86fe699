"""Records of a manifest: one tensor at one moment each. docs/dump.md has the schema."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from lang_core import InputError, TapelineError, TensorSpec, checked_choices

Direction = Literal["IN", "OUT", "INOUT", "TAG"]
When = Literal["before", "during", "after"]

_DIRECTIONS: Final = ("IN", "OUT", "INOUT", "TAG")
_WHENS: Final = ("before", "during", "after")
_DROPS: Final = (None, "tensor_limit", "total_limit")


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLabel:
    """Name of a tensor, and the moment of the dump.

    Attributes:
        step: number of the call in the dump, from 0, of any entry point.
        entry_point: entry point that was called.
        name: name of the argument or result; module path and name of a tag.
        direction: direction of an argument or result; TAG for a tag.
        when: ``before`` the call for arguments, ``after`` for results, ``during`` for tags.
        iteration: number of earlier occurrences in the call of a tag or a kernel, which counts the iterations of loops.
            None for arguments and results of the entry point.
        module_path: path of the module that tagged it; None for arguments and results.
        op: op that computed it; ``placeholder`` for an argument, None if it is unknown.
        line: Python source line that called the op, ``package/file.py:line``; None if it is unknown.
        kernel: private function of the module that has it as an argument or result; None for tags and those of the
            entry point.
        call_site: number of the kernel's call in the entry point, from 0; None if there is no kernel.
        layer: number of the layer that calls the kernel; None if there is none.
    """

    step: int
    entry_point: str
    name: str
    direction: Direction
    when: When
    iteration: int | None = None
    module_path: str | None = None
    op: str | None = None
    line: str | None = None
    kernel: str | None = None
    call_site: int | None = None
    layer: int | None = None


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRecord(TensorLabel):
    """Tensor of a dump.

    Attributes:
        index: number in the dump, from 0.
        dtype: name of the dtype.
        shape: dimensions.
        bytes: size of the elements.
        min: least finite element; None if there is none.
        max: greatest finite element; None if there is none.
        mean: mean of the finite elements; None if there is none.
        nan: number of elements that are NaN.
        inf: number of elements that are infinite.
        file: path of the payload in the dump's directory; None if none was written.
        dropped: reason why a payload was not written: ``tensor_limit``, ``total_limit``; else None.
    """

    index: int
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    min: float | int | None
    max: float | int | None
    mean: float | None
    nan: int
    inf: int
    file: str | None = None
    dropped: Literal["tensor_limit", "total_limit"] | None = None

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec(self.shape, self.dtype)

    @property
    def key(self) -> tuple[int, str, str, str, int | None]:
        """Identity of the tensor: unique in a dump, and the same in other dumps of the same calls."""
        return self.step, self.entry_point, self.name, self.when, self.iteration

    def as_json(self) -> dict[str, Any]:
        """Returns the fields, for the manifest."""
        return fields_of(self) | {"shape": list(self.shape)}

    @classmethod
    def from_json(cls, fields: Any, where: str) -> "DumpRecord":
        """Reads the fields that ``as_json`` returned.

        Raises:
            InputError: a field is missing, unknown, or of the wrong type.
        """
        if not isinstance(fields, Mapping):
            raise InputError(f"{where}: expected an object, found {type(fields).__name__}: {_AGAIN}")
        fields = {**dict.fromkeys(_ADDED), **fields}
        missing = [name for name in _KINDS if name not in fields]
        unknown = [name for name in fields if name not in _KINDS]
        if missing or unknown:
            problem = f"{', '.join(missing)} missing" if missing else f"unknown {', '.join(map(repr, unknown))}"
            raise InputError(f"{where}: {problem}: {_AGAIN}")
        for name, kinds in _KINDS.items():
            if type(fields[name]) not in kinds:
                raise InputError(f"{where}: {name} is {fields[name]!r}: {_AGAIN}")
        file = fields["file"]
        if file is not None and (file.startswith("/") or ".." in file.split("/")):
            raise InputError(f"{where}: file is {file!r}, which is outside of the dump: {_AGAIN}")
        for name, known in (("direction", _DIRECTIONS), ("when", _WHENS), ("dropped", _DROPS)):
            if fields[name] not in known:
                raise InputError(f"{where}: {name} is {fields[name]!r}, expected one of {known}: {_AGAIN}")
        record = cls(**{**fields, "shape": tuple(fields["shape"])})
        try:
            nbytes = record.spec.nbytes
        except (TapelineError, TypeError) as error:
            raise InputError(f"{where}: dtype and shape: {error}: {_AGAIN}") from None
        if nbytes != record.bytes:
            raise InputError(f"{where}: {record.spec!r} has {nbytes} bytes, found {record.bytes}: {_AGAIN}")
        return record


def fields_of(record: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass by name, without copies: ``dataclasses.asdict`` takes 20 times as long."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


_AGAIN: Final = "the manifest is damaged; dump again"

# Fields that manifests of earlier versions lack.
_ADDED: Final = ("kernel", "call_site", "layer")
_NONE: Final = type(None)
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "index": (int,),
    "step": (int,),
    "entry_point": (str,),
    "name": (str,),
    "direction": (str,),
    "when": (str,),
    "iteration": (int, _NONE),
    "module_path": (str, _NONE),
    "op": (str, _NONE),
    "line": (str, _NONE),
    "kernel": (str, _NONE),
    "call_site": (int, _NONE),
    "layer": (int, _NONE),
    "dtype": (str,),
    "shape": (list,),
    "bytes": (int,),
    "min": (float, int, _NONE),
    "max": (float, int, _NONE),
    "mean": (float, int, _NONE),
    "nan": (int,),
    "inf": (int,),
    "file": (str, _NONE),
    "dropped": (str, _NONE),
}
