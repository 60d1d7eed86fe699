"""What all layers of one step share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lang_core import ExecutionContext, Tensor
from transformer_core._cache import Cache
from transformer_core._gated_delta_net import DeltaState
from transformer_core._kv_cache import KVCache, RingCache
from transformer_core._masks import causal_mask, mask_bias
from transformer_core._places import Places, cache_starts, row_places
from transformer_core._rope import rope_tables
from transformer_core._rope_config import RopeConfig


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Computed once per step, before the first layer. Where sequences have positions of their own, per sequence.

    Attributes:
        cos: f32 [T, R] or [B, T, R] from ``rope_tables``, of the model's RoPE.
        sin: as cos.
        positions: i32 [T] or [B, T], of the tokens.
        biases: f32 [T, S] or [B, T, S] for each window of the layers (None is no window), from ``mask_bias``.
        places: where the new keys and values go in the caches, for each window; empty without caches.
        count: i32 of rank 0 or [B], how many of the tokens count, where those after them are padding; else None.
        local_cos: as cos, of the second RoPE that some models have for layers with windows.
        local_sin: as sin.
    """

    cos: Tensor
    sin: Tensor
    positions: Tensor
    biases: Mapping[int | None, Tensor]
    places: Mapping[int | None, Places] = field(default_factory=dict)
    count: Tensor | None = None
    local_cos: Tensor | None = None
    local_sin: Tensor | None = None


def make_step(
    ctx: ExecutionContext,
    rope: RopeConfig,
    windows: Iterable[int | None],
    queries: int,
    *,
    keys: int | None = None,
    rings: Mapping[int, int] | None = None,
    batch: int = 1,
    position: Tensor | None = None,
    length: Tensor | int | None = None,
    count: Tensor | None = None,
    local_rope: RopeConfig | None = None,
) -> StepInputs:
    """Computes what the layers of a step share.

    Args:
        ctx: where to compute.
        rope: of the model.
        windows: of the layers.
        queries: T, the number of new tokens.
        keys: S, the capacity of the caches; T where None.
        rings: the capacities of ring caches, by the window of the layers that have them.
        batch: B; it matters to places in rings only.
        position: i32 of rank 0 or [B], that of the first new token; without caches it is 0.
        length: of the sequence including the new tokens that count, as position; T where None and there is no position.
        count: of ``StepInputs``. With positions per sequence, caches stay as they are where tokens do not count.
        local_rope: of the layers with windows, where it is not the model's.
    """
    capacity = queries if keys is None else keys
    positions = ctx.ops.iota((queries,))
    if position is not None:
        each = ctx.ops.reshape(position, (*position.shape, 1)) if position.ndim else position
        positions = ctx.ops.add(positions, each)
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
            mask = causal_mask(ctx, queries, size, position=first, window=effective, ring=window in rings)
            biases[effective] = mask_bias(ctx, mask)
        biases[window] = biases[effective]
    places = {} if position is None else _places(ctx, biases, capacity, rings, positions, position, batch, count)
    local = (None, None) if local_rope is None else rope_tables(ctx, local_rope, positions, length)
    return StepInputs(cos, sin, positions, biases, places, count, *local)


def extending_step(
    ctx: ExecutionContext,
    rope: RopeConfig,
    windows: Sequence[int | None],
    queries: int,
    *,
    batch: int,
    position: Tensor,
    last: Tensor | None,
    caches: Sequence[Cache],
    local_rope: RopeConfig | None = None,
) -> StepInputs:
    """What the layers share when tokens are appended to the sequences in their caches.

    Args:
        ctx: where to compute.
        rope: of the model.
        windows: of the layers.
        queries: T.
        batch: B.
        position: as for ``make_step``.
        last: as position, the row of the last token that counts; T - 1 where None.
        caches: of the layers.
        local_rope: as for ``make_step``.
    """
    ops, length = ctx.ops, None
    if rope.scaling.depends_on_length:
        length = ops.add(ops.add(position, queries - 1 if last is None else last), 1)
    padded = position.ndim > 0 or any(isinstance(cache, DeltaState) for cache in caches)
    return make_step(
        ctx,
        rope,
        windows,
        queries,
        keys=next(
            (cache.capacity for cache in caches if isinstance(cache, KVCache) and not isinstance(cache, RingCache)),
            None,
        ),
        rings={cache.window: cache.capacity for cache in caches if isinstance(cache, RingCache)},
        batch=batch,
        position=position,
        length=length,
        count=ops.add(last, 1) if last is not None and padded else None,
        local_rope=local_rope,
    )


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
    made: dict[int | None, Places] = {}  # by the capacity of rings, None for whole caches
    found: dict[int | None, Places] = {}
    for window in windows:
        ring = None if window is None else rings.get(window)
        if ring not in made:
            if position.ndim:
                made[ring] = row_places(ctx, positions, batch, ring or capacity, count)
            elif ring is None:
                made[ring] = cache_starts(ctx, position)
            elif positions.shape == (1,):
                made[ring] = cache_starts(ctx, ctx.ops.rem(position, ring))
            else:
                made[ring] = row_places(ctx, positions, batch, ring)
        found[window] = made[ring]
    return found


def for_heads(ctx: ExecutionContext, x: Tensor, ndim: int) -> Tensor:
    """[B, T, ..] as [B, 1, .., T, ..] of ``ndim`` dimensions, to be broadcast over heads; what has no B as it is."""
    if x.ndim < 3:
        return x
    return ctx.ops.reshape(x, (x.shape[0], *[1] * (ndim - 3), *x.shape[1:]))
