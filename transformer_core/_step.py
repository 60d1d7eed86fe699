"""What all layers of one step share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lang_core import ExecutionContext, Tensor
from transformer_core._kv_cache import Starts, cache_starts
from transformer_core._masks import causal_mask, mask_bias
from transformer_core._rope import rope_tables
from transformer_core._rope_config import RopeConfig


@dataclass(frozen=True, slots=True)
class Step:
    """Computed once per step, before the first layer.

    Attributes:
        cos: f32 [T, R] from ``rope_tables``, of the model's RoPE.
        sin: f32 [T, R].
        positions: i32 [T], of the tokens.
        biases: f32 [T, S] for each window of the layers (None is no window), from ``mask_bias``.
        starts: where the new keys and values go in the caches; None without caches.
        count: rank-0 i32, how many of the tokens count, where those after them are padding; else None.
        local_cos: as cos, of the second RoPE that some models have for layers with windows.
        local_sin: as sin.
    """

    cos: Tensor
    sin: Tensor
    positions: Tensor
    biases: Mapping[int | None, Tensor]
    starts: Starts | None = None
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
    position: Tensor | None = None,
    length: Tensor | int | None = None,
    count: Tensor | None = None,
    local_rope: RopeConfig | None = None,
) -> Step:
    """Computes what the layers of a step share.

    Args:
        ctx: where to compute.
        rope: of the model.
        windows: of the layers.
        queries: T, the number of new tokens.
        keys: S, the capacity of the caches; T where None.
        position: rank-0 i32, that of the first new token; without caches it is 0.
        length: of the sequence including the new tokens that count; T where None and there is no position.
        count: of ``Step``.
        local_rope: of the layers with windows, where it is not the model's.
    """
    capacity = queries if keys is None else keys
    positions = ctx.ops.iota((queries,))
    if position is not None:
        positions = ctx.ops.add(positions, position)
    elif length is None:
        length = queries
    cos, sin = rope_tables(ctx, rope, positions, length)
    first = 0 if position is None else position
    biases: dict[int | None, Tensor] = {}
    for window in windows:
        effective = None if window is None or window >= capacity else window
        if effective not in biases:
            biases[effective] = mask_bias(ctx, causal_mask(ctx, queries, capacity, position=first, window=effective))
        biases[window] = biases[effective]
    starts = None if position is None else cache_starts(ctx, position)
    local = (None, None) if local_rope is None else rope_tables(ctx, local_rope, positions, length)
    return Step(cos, sin, positions, biases, starts, count, *local)
