"""Inputs that all layers of a step share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lang_core import ConfigError, ExecutionContext, Tensor, checked_choices
from transformer_core.layers._cache import Cache, State
from transformer_core.layers._kv_cache import KVCache, RingCache
from transformer_core.layers._masks import causal_mask, mask_bias
from transformer_core.layers._places import Places, cache_row_places, cache_starts, page_places, row_places
from transformer_core.layers._position_cache import PositionCache
from transformer_core.layers._rope import rope_tables
from transformer_core.layers._rope_config import RopeConfig

_HEADED: Final = (KVCache, PositionCache)
_PAGED: Final = 2  # rank of rows of which each sequence has several


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Inputs computed once per step, before the first layer; per sequence [B, ..] if positions are per row.

    Attributes:
        cos: f32 [T, R] or [B, T, R] from ``rope_tables``, for the model's RoPE.
        sin: as ``cos``.
        known_positions: i32 [T] or [B, T], positions of the tokens; None if the caller has made tables of them.
        biases: f32 [T, S] or [B, T, S] for each window of the layers (None is unlimited), from ``mask_bias``; None
            if each token sees all keys.
        places: places of new keys and values in the caches, for each window; empty without caches.
        count: i32 of rank 0 or [B], number of tokens before padding; None without padding.
        local_cos: ``cos`` of the second RoPE that some models have for layers with windows.
        local_sin: as ``local_cos``.
        key_places: i32 [S], tokens of the keys, if these are not those of the step in their order; ``biases`` are
            [1, T, S] then, and each query sees a key.
    """

    cos: Tensor
    sin: Tensor
    known_positions: Tensor | None
    biases: Mapping[int | None, Tensor | None]
    places: Mapping[int | None, Places] = field(default_factory=dict)
    count: Tensor | None = None
    local_cos: Tensor | None = None
    local_sin: Tensor | None = None
    key_places: Tensor | None = None

    @property
    def positions(self) -> Tensor:
        """Positions of the tokens, i32 [T] or [B, T].

        Raises:
            ConfigError: they are not known.
        """
        if self.known_positions is None:
            raise ConfigError(
                "positions: the caller has made tables of them (memory bindings), and a layer needs the numbers: take "
                "memory none, taps or caches"
            )
        return self.known_positions


@dataclass(frozen=True, slots=True)
class CacheRows:
    """Rows of caches that a call works on.

    Attributes:
        row: i32 of rank 0 or [B]: distinct. Or [B, M], the pages of each sequence.
        kv_heads: each K that caches have.
    """

    row: Tensor
    kv_heads: tuple[int, ...]

    @property
    def pages(self) -> int:
        """Number of rows that a sequence has."""
        return self.row.shape[1] if self.row.ndim == _PAGED else 1


@checked_choices
def make_step(
    ctx: ExecutionContext,
    rope: RopeConfig,
    windows: Iterable[int | None],
    queries: int,
    *,
    chunked: bool = False,
    keys: int | None = None,
    rings: Mapping[int, int] | None = None,
    batch: int = 1,
    position: Tensor | None = None,
    length: Tensor | int | None = None,
    count: Tensor | None = None,
    local_rope: RopeConfig | None = None,
    rows: CacheRows | None = None,
) -> StepInputs:
    """Computes the inputs that the layers of a step share.

    Args:
        ctx: context that computes.
        rope: RoPE of the model.
        windows: windows of the layers.
        queries: T, the number of new tokens.
        chunked: whether windows are chunks; see ``causal_mask``.
        keys: S, the capacity of the caches; T if None.
        rings: capacities of ring caches, by the window of their layers.
        batch: B; used for places in rings only.
        position: i32 of rank 0 or [B], position of the first new token; None without caches.
        length: length of the sequence with the new real tokens, rank 0 or [B]; T if both are None.
        count: i32 [B], as in ``StepInputs``. With a position per sequence, padding is not written to caches.
        local_rope: RoPE of the layers with windows, if it is not the model's.
        rows: rows of the caches that the sequences have, if these have more than B; with a count.
    """
    capacity = queries if keys is None else keys
    positions = ctx.ops.iota((queries,))
    if position is not None:
        first_of_row = ctx.ops.reshape(position, (*position.shape, 1)) if position.ndim else position
        positions = ctx.ops.add(positions, first_of_row)
    elif length is None:
        length = queries
    cos, sin = rope_tables(ctx, rope, positions, length)
    rings = rings or {}
    first = 0 if position is None else position
    biases: dict[int | None, Tensor] = {}
    for window in windows:
        if window is not None and window in rings:
            effective, size = window, rings[window]
        else:
            effective, size = None if window is None or window >= capacity else window, capacity
        if effective not in biases:
            mask = causal_mask(
                ctx, queries, size, position=first, window=effective, chunked=chunked, ring=window in rings
            )
            biases[effective] = mask_bias(ctx, mask)
        biases[window] = biases[effective]
    places: dict[int | None, Places] = {}
    if position is not None and rows is not None:
        places = _places_in_rows(ctx, biases, capacity, rings, positions, batch, count, rows)
    elif position is not None:
        places = _places(ctx, biases, capacity, rings, positions, position, batch, count)
    local = (None, None) if local_rope is None else rope_tables(ctx, local_rope, positions, length)
    return StepInputs(cos, sin, positions, biases, places, count, *local)


@checked_choices
def extending_step(
    ctx: ExecutionContext,
    rope: RopeConfig,
    windows: Sequence[int | None],
    queries: int,
    *,
    chunked: bool = False,
    batch: int,
    position: Tensor,
    last: Tensor | None,
    caches: Sequence[Cache],
    row: Tensor | None = None,
    local_rope: RopeConfig | None = None,
    length: Tensor | int | None = None,
) -> StepInputs:
    """Computes the shared inputs of a step that appends tokens to the sequences in the caches.

    Args:
        ctx: context that computes.
        rope: RoPE of the model.
        windows: windows of the layers.
        queries: T.
        chunked: whether windows are chunks; see ``causal_mask``.
        batch: B.
        position: as for ``make_step``.
        last: row of the last real token, as ``position``; T - 1 if None.
        caches: caches of the layers.
        row: rows of the caches that the sequences have, as ``position``, or their pages i32 [B, M]; None if these
            have B rows.
        local_rope: as for ``make_step``.
        length: number of tokens that the sequences have in all, if RoPE depends on it: an int, the same at every call,
            or as ``position``; the length after this step if None, or if that is more.
    """
    ops = ctx.ops
    if any(one is not None and one.scaling.depends_on_length for one in (rope, local_rope)):
        if not isinstance(length, int):
            after = ops.add(ops.add(position, queries - 1 if last is None else last), 1)
            length = after if length is None else ops.maximum(length, after)
    else:
        length = None
    padded = position.ndim > 0 or row is not None or any(isinstance(cache, State) for cache in caches)
    rows = None if row is None else CacheRows(row, _kv_heads(caches))
    held = next((x.capacity for x in caches if isinstance(x, KVCache) and not isinstance(x, RingCache)), None)
    return make_step(
        ctx,
        rope,
        windows,
        queries,
        chunked=chunked,
        keys=held if held is None or rows is None else held * rows.pages,
        rings={cache.window: cache.capacity for cache in caches if isinstance(cache, RingCache)},
        batch=batch,
        position=position,
        length=length,
        count=ops.add(last, 1) if last is not None and padded else None,
        local_rope=local_rope,
        rows=rows,
    )


def _kv_heads(caches: Iterable[Cache]) -> tuple[int, ...]:
    heads = {
        1 if isinstance(cache, PositionCache) else cache.key.shape[1] for cache in caches if isinstance(cache, _HEADED)
    }
    return tuple(sorted(heads))


def _places(
    ctx: ExecutionContext,
    windows: Iterable[int | None],
    capacity: int,
    rings: Mapping[int, int],
    positions: Tensor,
    position: Tensor,
    batch: int,
    count: Tensor | None,
) -> dict[int | None, Places]:
    by_ring: dict[int | None, Places] = {}  # by the capacity of rings, None for whole caches
    by_window: dict[int | None, Places] = {}
    for window in windows:
        ring = None if window is None else rings.get(window)
        if ring not in by_ring:
            if position.ndim:
                by_ring[ring] = row_places(ctx, positions, batch, ring or capacity, count)
            elif ring is None:
                by_ring[ring] = cache_starts(ctx, position)
            elif positions.shape == (1,):
                by_ring[ring] = cache_starts(ctx, ctx.ops.rem(position, ring))
            else:
                by_ring[ring] = row_places(ctx, positions, batch, ring)
        by_window[window] = by_ring[ring]
    return by_window


def _places_in_rows(
    ctx: ExecutionContext,
    windows: Iterable[int | None],
    capacity: int,
    rings: Mapping[int, int],
    positions: Tensor,
    batch: int,
    count: Tensor | None,
    rows: CacheRows,
) -> dict[int | None, Places]:
    by_capacity: dict[int, Places] = {}
    by_window: dict[int | None, Places] = {}
    for window in windows:
        held = capacity if window is None else rings.get(window, capacity)
        if held not in by_capacity:
            within = row_places(ctx, positions, batch, held, count)
            if rows.pages > 1:
                by_capacity[held] = page_places(ctx, rows.row, rows.kv_heads, within, held // rows.pages)
            else:
                by_capacity[held] = cache_row_places(ctx, rows.row, rows.kv_heads, within, held)
        by_window[window] = by_capacity[held]
    return by_window


def for_heads(ctx: ExecutionContext, x: Tensor, ndim: int) -> Tensor:
    """Reshapes [B, T, ..] to [B, 1, .., T, ..] of ``ndim`` dimensions, to broadcast over heads; without B unchanged."""
    if x.ndim < 3:
        return x
    return ctx.ops.reshape(x, (x.shape[0], *[1] * (ndim - 3), *x.shape[1:]))
