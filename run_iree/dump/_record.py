"""One line of a manifest: what is known of one tensor at one moment. docs/dump.md has the schema."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from lang_core import InputError, TapelineError, TensorSpec

Direction = Literal["IN", "OUT", "INOUT", "TAG"]
When = Literal["before", "during", "after"]

_DIRECTIONS: Final = ("IN", "OUT", "INOUT", "TAG")
_WHENS: Final = ("before", "during", "after")
_DROPS: Final = (None, "tensor_limit", "total_limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLabel:
    """Which tensor, and when.

    Attributes:
        step: which call of the dump, from 0, whatever its entry point.
        entry_point: that was called.
        name: of the argument or result, or of the tag: its module path and its own name.
        direction: of an argument or result; TAG for a tag.
        when: arguments before the call, results after it, tags during it.
        iteration: of a tag: how often it was met before in the same call, which counts the rounds of loops; 0 outside.
            None for arguments and results.
        module_path: of the module that tagged it; None for arguments and results.
        op: that made it; ``placeholder`` for an argument, None where it is not known.
        line: where in the Python source the op was called, ``package/file.py:line``; None where it is not known.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpRecord(TensorLabel):
    """A tensor of a dump.

    Attributes:
        index: from 0, in the order in which the tensors were met.
        dtype: a name of the table's.
        shape: dimensions.
        bytes: of the elements.
        min: the least finite element; None where there is none.
        max: the largest.
        mean: of the finite elements.
        nan: how many elements are NaN.
        inf: how many are infinite.
        file: the payload, relative to the dump's directory; None where none was written.
        dropped: why a payload that was asked for was not written: ``tensor_limit``, ``total_limit``; else None.
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
        """What is the same for the same tensor in another dump of the same calls, and unique in one dump."""
        return self.step, self.entry_point, self.name, self.when, self.iteration

    def as_json(self) -> dict[str, Any]:
        """The fields, for the manifest."""
        return fields_of(self) | {"shape": list(self.shape)}

    @classmethod
    def from_json(cls, fields: Any, where: str) -> "DumpRecord":
        """Reads what ``as_json`` wrote.

        Raises:
            InputError: a field is missing, unknown, or of another kind.
        """
        if not isinstance(fields, Mapping):
            raise InputError(f"{where}: an object is wanted, found {type(fields).__name__}: {_AGAIN}")
        missing = [name for name in _KINDS if name not in fields]
        unknown = [name for name in fields if name not in _KINDS]
        if missing or unknown:
            found = f"{', '.join(missing)} missing" if missing else f"unknown {', '.join(map(repr, unknown))}"
            raise InputError(f"{where}: {found}: {_AGAIN}")
        for name, kinds in _KINDS.items():
            if type(fields[name]) not in kinds:
                raise InputError(f"{where}: {name} is {fields[name]!r}: {_AGAIN}")
        file = fields["file"]
        if file is not None and (file.startswith("/") or ".." in file.split("/")):
            raise InputError(f"{where}: file is {file!r}, which is outside of the dump: {_AGAIN}")
        for name, known in (("direction", _DIRECTIONS), ("when", _WHENS), ("dropped", _DROPS)):
            if fields[name] not in known:
                raise InputError(f"{where}: {name} is {fields[name]!r}, known are {known}: {_AGAIN}")
        record = cls(**{**fields, "shape": tuple(fields["shape"])})
        try:
            nbytes = record.spec.nbytes
        except (TapelineError, TypeError) as error:
            raise InputError(f"{where}: dtype and shape: {error}: {_AGAIN}") from None
        if nbytes != record.bytes:
            raise InputError(f"{where}: {record.spec!r} has {nbytes} bytes, found {record.bytes}: {_AGAIN}")
        return record


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are: ``dataclasses.asdict`` takes copies, and 20 times as long."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


_AGAIN: Final = "the manifest is damaged; dump again"

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
