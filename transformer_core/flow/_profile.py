"""Profiles: the sizes of an entry point and its caches."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from lang_core import ConfigError, DType, Encoding, OpError, as_dtype, checked_choices, f32, f64, near_names
from lang_core.ops import CACHE_ENCODINGS


class Memory(enum.Enum):
    """Treatment of keys, values and states."""

    NONE = "none"
    """Whole sequences; nothing is kept."""
    TAPS = "taps"
    """Whole sequences; the keys and values of the run are results, [B, K, T, H]."""
    CACHES = "caches"
    """Caches of capacity S are arguments, updated in place at ``position``."""
    BINDINGS = "bindings"
    """cos, sin, mask and the past keys and values are arguments, and the new ones results."""


class Rows(enum.Enum):
    """Rows of each sequence for which results are wanted."""

    ALL = "all"
    LAST = "last"


class Positions(enum.Enum):
    """Positions of the sequences of a batch: the same for all, or one each."""

    SHARED = "shared"
    """``position`` and ``last`` are numbers."""
    PER_ROW = "per_row"
    """They are i32 [B], and bound tables and masks are per sequence."""


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class CompileProfile:
    """One entry point: its name, its sizes and its caches.

    Attributes:
        name: name of the entry point.
        sequence: T, the tokens that one call takes.
        batch: B.
        max_sequence: S, the capacity of caches and the length of the past in bindings; ``sequence`` if None.
        dtype: dtype of parameters, activations and caches, or its name.
        memory: treatment of keys, values and states.
        rows: rows that ``last_token`` lets through.
        positions: whether the sequences of a batch share their positions.
        causal: whether a token sees only itself and those before it.
        masked: whether bindings have a mask per window; without, the one token of a call sees all keys and values.
        padded: whether the last tokens of a call may be padding; ``last``, the row of the last real token, is then an
            argument. If None, it is one if a stage takes the last row of several.
        ring_tokens: the most tokens that a call of any entry point appends, if layers with a window keep rings of the
            entries that they need (``RingCache``); None: they keep every position.
        cache_rows: number of rows of the caches, of which a call works on B that the argument ``row`` names: a number
            with shared positions, if B is 1, else i32 [B]. If None, B, without this argument.
        page_tokens: positions of each row of the caches, if these are pages, of which a sequence has
            ``max_sequence / page_tokens``: the argument ``pages`` i32 [B, M] is then in the place of ``row``.
        kv_cache: encoding that keys and values are packed in when they are appended to caches; None: ``dtype``.
        adapter_rank: R, ranks of a LoRA adapter of each sequence, whose tables are arguments; None without adapters.
        next_ids: whether the index of each row's largest logit is the last result, ``next_ids``.
        outputs: names of the side outputs that are results, in this order; all if None.

    Raises:
        ConfigError: a value has another type or is out of range.

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
    masked: bool = True
    padded: bool | None = None
    ring_tokens: int | None = None
    cache_rows: int | None = None
    page_tokens: int | None = None
    kv_cache: Encoding | None = None
    adapter_rank: int | None = None
    next_ids: bool = False
    outputs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if type(self.name) is not str or not self.name.isidentifier():
            raise _wrong("name", "the name of a function", self.name)
        for field, optional in _SIZES:
            size = getattr(self, field)
            if not (optional and size is None) and (type(size) is not int or size < 1):
                raise _wrong(field, "an integer of 1 or more", size)
        object.__setattr__(self, "dtype", _floating(self.dtype))
        if self.memory is Memory.CACHES and self.sequence > self.capacity:
            raise ConfigError(
                f"sequence: expected at most max_sequence ({self.capacity}); found {self.sequence}: "
                "lower one or raise the other"
            )
        if self.ring_tokens is not None and self.ring_tokens < self.sequence:
            raise _wrong("ring_tokens", f"at least sequence ({self.sequence})", self.ring_tokens)
        self._check_cache_rows()
        if not self.masked and (self.memory is not Memory.BINDINGS or self.sequence != 1):
            raise ConfigError(
                "masked: false needs memory bindings and sequence 1, for a token must not see those after it; found "
                f"memory {self.memory.value}, sequence {self.sequence}"
            )
        if self.outputs is not None:
            if not _are_names(self.outputs):
                raise _wrong("outputs", "names, each once", self.outputs)
            object.__setattr__(self, "outputs", tuple(self.outputs))

    def _check_cache_rows(self) -> None:
        if self.adapter_rank is not None and self.cache_rows is None:
            raise _wrong("cache_rows", "rows of caches, whose sequences adapters are of", self.cache_rows)
        if self.page_tokens is not None:
            self._check_pages(self.page_tokens)
        if self.kv_cache is not None:
            self._check_kv_cache(self.kv_cache)
        if self.cache_rows is None:
            return
        if self.memory is not Memory.CACHES:
            raise _wrong("memory", "caches, for cache_rows are rows of those", self.memory.value)
        if self.cache_rows < self.batch:
            raise _wrong("cache_rows", f"at least batch ({self.batch})", self.cache_rows)
        if self.positions is Positions.SHARED and self.batch != 1:
            raise _wrong("batch", "1 with cache_rows and shared positions", self.batch)

    def _check_kv_cache(self, encoding: Any) -> None:
        if getattr(encoding, "name", None) not in CACHE_ENCODINGS:
            raise _wrong("kv_cache", f"an encoding of ENCODINGS: {' or '.join(CACHE_ENCODINGS)}", encoding)
        if self.memory is not Memory.CACHES:
            raise _wrong("memory", "caches, for kv_cache is the form of those", self.memory.value)
        if self.dtype is f64:
            raise _wrong("dtype", "f32, f16 or bf16 with kv_cache", self.dtype.name)

    def _check_pages(self, page: int) -> None:
        if self.cache_rows is None:
            raise _wrong("cache_rows", "the number of pages, with page_tokens", self.cache_rows)
        if self.capacity % page or self.capacity == page:
            raise ConfigError(
                f"page_tokens: expected a part of max_sequence ({self.capacity}), for a sequence has whole pages, and "
                f"more than one; found {page}: choose max_sequence={max(2, -(-self.capacity // page)) * page}"
            )
        least = self.capacity // page + 1
        if self.cache_rows < least:
            raise _wrong(
                "cache_rows", f"at least {least} pages: a sequence's, and one that is nobody's", self.cache_rows
            )

    @property
    def capacity(self) -> int:
        """S."""
        return self.sequence if self.max_sequence is None else self.max_sequence

    @property
    def keeps(self) -> bool:
        """True if there are tokens before those of a call."""
        return self.memory in (Memory.CACHES, Memory.BINDINGS)

    @property
    def reach(self) -> int:
        """The most positions that a sequence has."""
        past = self.capacity if self.keeps else 0
        return past if self.memory is Memory.CACHES else past + self.sequence

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axis letters that inputs may have."""
        return {"B": self.batch, "T": self.sequence, "S": self.capacity}

    @classmethod
    def preset(cls, preset: str, **changes: Any) -> "CompileProfile":
        """Returns a profile of ``PRESETS`` with changes.

        Raises:
            ConfigError: the preset or a field is unknown, or a field without a value in the preset is missing.
        """
        if preset not in PRESETS:
            raise ConfigError(
                f"preset {preset!r} is unknown; available: {', '.join(PRESETS)}{near_names(preset, PRESETS)}"
            )
        known = [field.name for field in fields(cls)]
        for key in changes:
            if key not in known:
                raise ConfigError(f"profile {preset}: unknown key {key!r}{near_names(key, known)}")
        values = {**PRESETS[preset], **changes}
        if "sequence" not in values:
            raise ConfigError(f"profile {preset}: 'sequence' is missing: how many tokens does one call take?")
        return cls(**values)


_SIZES: Final = (
    ("sequence", False),
    ("batch", False),
    ("max_sequence", True),
    ("ring_tokens", True),
    ("cache_rows", True),
    ("page_tokens", True),
    ("adapter_rank", True),
)
"""Fields that are sizes, and whether they may be left out."""

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "prefill": {"name": "prefill", "memory": Memory.CACHES, "rows": Rows.LAST},
    "decode": {"name": "decode", "memory": Memory.CACHES, "rows": Rows.LAST, "sequence": 1},
    "verify": {"name": "verify", "memory": Memory.CACHES, "padded": True},
    "encoder": {"name": "forward", "causal": False},
    "training": {"name": "forward"},
}
"""Fields of each preset besides a profile's defaults."""


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


def _wrong(field: str, expected: str, value: Any) -> ConfigError:
    return ConfigError(f"{field}: expected {expected}; found {value!r}")
