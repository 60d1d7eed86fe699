"""The cache of keys and values of one layer."""

import functools
from dataclasses import dataclass, replace
from typing import Final, Self

from lang_core import Axes, DType, ExecutionContext, OpError, Tensor, TensorSpec
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._places import Places

HEAD_AXES: Final[Axes] = ("dp", "tp", None, None)
"""Axes of a mesh that may cut keys or values [B, K, S, H]."""


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values at fixed capacity S; the entry of a position lies at that place.

    Attributes:
        key: [B, K, S, H].
        value: [B, K, S, H].
    """

    key: Tensor
    value: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """``key`` and ``value`` [B, K, S, H]."""
        return self.key, self.value

    @property
    def capacity(self) -> int:
        """S."""
        return self.key.shape[2]

    def updated(self, ctx: ExecutionContext, key: Tensor, value: Tensor, places: Places) -> Self:
        """Returns the cache with T new entries.

        Args:
            ctx: context that computes.
            key: [B, K, T, H].
            value: [B, K, T, H].
            places: places of the entries, from ``cache_starts`` or ``row_places``.

        Raises:
            OpError: there are more new entries than the cache can hold.
        """
        capacity = places.capacity(self.key)
        if key.shape[2] > capacity:
            raise OpError(f"a KV cache of capacity {capacity} cannot take {key.shape[2]} entries at once")
        return replace(self, key=places.written(ctx, self.key, key), value=places.written(ctx, self.value, value))


@dataclass(frozen=True, slots=True)
class RingCache(KVCache):
    """The last entries alone, for a layer with a window: the entry of a position lies at position mod capacity.

    With a window of W keys, calls that append up to T tokens need W + T - 1 places: the first of the new tokens sees W
    keys, and the T - 1 after it must not overwrite these. A call begins at 0, or at most T positions before the end of
    the written entries, padding included.

    Attributes:
        window: W.
    """

    window: int


def kv_layout(key: TensorSpec, value: TensorSpec, window: int | None = None) -> CacheLayout:
    """Returns the layout of a cache with these keys and values, of a layer with a window or without."""
    return CacheLayout(
        KVCache,
        {"key_cache": key, "value_cache": value},
        window=window,
        axes={"key_cache": HEAD_AXES, "value_cache": HEAD_AXES},
    )


def ring_layout(layout: CacheLayout, tokens: int) -> CacheLayout:
    """Returns the layout of a ring in place of a whole cache, if the layer has a window and the ring is smaller.

    Args:
        layout: layout of a layer's cache.
        tokens: T, the most tokens that a call appends.
    """
    if layout.window is None or layout.make is not KVCache:
        return layout
    capacity = layout.window + tokens - 1
    if any(spec.shape[2] <= capacity for spec in layout.specs.values()):
        return layout
    specs = {
        name: TensorSpec((*spec.shape[:2], capacity, *spec.shape[3:]), spec.dtype)
        for name, spec in layout.specs.items()
    }
    return replace(layout, make=functools.partial(RingCache, window=layout.window), specs=specs)


def cache_spec(batch: int, kv_heads: int, capacity: int, head_size: int, dtype: DType | str) -> TensorSpec:
    """Returns the spec of a layer's keys, or values: [B, K, S, H].

    Args:
        batch: B.
        kv_heads: K.
        capacity: S, the positions that the cache holds.
        head_size: H.
        dtype: dtype of the elements.
    """
    return TensorSpec((batch, kv_heads, capacity, head_size), dtype)
