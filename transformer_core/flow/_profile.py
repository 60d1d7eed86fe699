"""What an entry point is made for."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from lang_core import ConfigError, DType, OpError, as_dtype, f32, near_names


class Memory(enum.Enum):
    """What becomes of keys, values and states."""

    NONE = "none"
    """Whole sequences; nothing is kept."""
    TAPS = "taps"
    """Whole sequences; the keys and values of the run come out, [B, K, T, H]."""
    CACHES = "caches"
    """Caches of capacity S are arguments, updated in place at ``position``."""
    BINDINGS = "bindings"
    """cos, sin, mask and the past keys and values come in, and the new ones come out."""


class Rows(enum.Enum):
    """Of which rows results are wanted."""

    ALL = "all"
    LAST = "last"


class Positions(enum.Enum):
    """Whether the sequences of a batch are of one length."""

    SHARED = "shared"
    """``position`` and ``last`` are numbers."""
    PER_ROW = "per_row"
    """They are i32 [B], and so are bound tables and masks per sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileProfile:
    """One entry point: its name, its sizes and what it keeps.

    Attributes:
        name: of the entry point.
        sequence: T.
        batch: B.
        max_sequence: S, the capacity of caches, and the length of the past in bindings; ``sequence`` where None.
        dtype: of parameters, activations and caches; its name will do.
        memory: what becomes of keys, values and states.
        rows: which rows ``last_token`` lets through.
        positions: of one length or of several.
        causal: whether a token sees none after it.
        outputs: the side outputs that are results, in this order; all where None.

    Raises:
        ConfigError: a value is of another type or out of range.

    >>> CompileProfile.preset("decode", max_sequence=64, dtype="bf16").dtype
    bf16
    """

    name: str
    sequence: int
    batch: int = 1
    max_sequence: int | None = None
    dtype: DType = f32
    memory: Memory = Memory.NONE
    rows: Rows = Rows.ALL
    positions: Positions = Positions.SHARED
    causal: bool = True
    outputs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if type(self.name) is not str or not self.name.isidentifier():
            raise _wrong("name", "the name of a function", self.name)
        for field in ("sequence", "batch", "max_sequence"):
            size = getattr(self, field)
            if not (field == "max_sequence" and size is None) and (type(size) is not int or size < 1):
                raise _wrong(field, "an integer of 1 or more", size)
        object.__setattr__(self, "dtype", _floating(self.dtype))
        object.__setattr__(self, "memory", _member(Memory, "memory", self.memory))
        object.__setattr__(self, "rows", _member(Rows, "rows", self.rows))
        object.__setattr__(self, "positions", _member(Positions, "positions", self.positions))
        if self.memory is Memory.CACHES and self.sequence > self.capacity:
            raise ConfigError(
                f"sequence: expected at most max_sequence ({self.capacity}); found {self.sequence}: "
                "lower one or raise the other"
            )
        if type(self.causal) is not bool:
            raise _wrong("causal", "true or false", self.causal)
        if self.outputs is not None:
            if not _are_names(self.outputs):
                raise _wrong("outputs", "names, each once", self.outputs)
            object.__setattr__(self, "outputs", tuple(self.outputs))

    @property
    def capacity(self) -> int:
        """S."""
        return self.sequence if self.max_sequence is None else self.max_sequence

    @property
    def keeps(self) -> bool:
        """Whether there are tokens before those of a call."""
        return self.memory in (Memory.CACHES, Memory.BINDINGS)

    @property
    def reach(self) -> int:
        """How many positions a sequence has at most."""
        past = self.capacity if self.keeps else 0
        return past if self.memory is Memory.CACHES else past + self.sequence

    @property
    def sizes(self) -> dict[str, int]:
        """Of the axis letters that inputs may have."""
        return {"B": self.batch, "T": self.sequence, "S": self.capacity}

    @classmethod
    def preset(cls, preset: str, **changes: Any) -> "CompileProfile":
        """A profile of ``PRESETS`` with changes.

        Raises:
            ConfigError: there is no such preset or field, or a field without a value in the preset is not given.
        """
        if preset not in PRESETS:
            raise ConfigError(
                f"preset {preset!r} is unknown: there are {', '.join(PRESETS)}{near_names(preset, PRESETS)}"
            )
        known = [field.name for field in fields(cls)]
        for key in changes:
            if key not in known:
                raise ConfigError(f"profile {preset}: unknown key {key!r}{near_names(key, known)}")
        values = {**PRESETS[preset], **changes}
        if "sequence" not in values:
            raise ConfigError(f"profile {preset}: 'sequence' is missing: how many tokens does one call take?")
        return cls(**values)


PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "prefill": {"name": "prefill", "memory": Memory.CACHES, "rows": Rows.LAST},
    "decode": {"name": "decode", "memory": Memory.CACHES, "rows": Rows.LAST, "sequence": 1},
    "encoder": {"name": "forward", "causal": False},
    "training": {"name": "forward"},
}
"""What each preset says besides a profile's defaults."""


def _member(kind: type[enum.Enum], field: str, value: Any) -> enum.Enum:
    names = [member.value for member in kind]
    if not isinstance(value, kind) and not (type(value) is str and value in names):
        near = near_names(value, names) if isinstance(value, str) else ""
        raise ConfigError(f"{field}: expected one of {', '.join(names)}; found {value!r}{near}")
    return kind(value)


def _floating(value: Any) -> DType:
    try:
        dtype = as_dtype(value)
    except OpError as error:
        raise ConfigError(f"dtype: {error}") from None
    if not dtype.is_floating:
        raise _wrong("dtype", "f32, bf16, f16 or f64, for activations are fractions", dtype.name)
    return dtype


def _are_names(values: Any) -> bool:
    if not isinstance(values, Iterable) or isinstance(values, str):
        return False
    names = list(values)
    return all(type(name) is str and name for name in names) and len(set(names)) == len(names)


def _wrong(field: str, expected: str, found: Any) -> ConfigError:
    return ConfigError(f"{field}: expected {expected}; found {found!r}")
