"""The cache of keys and values of one layer."""

import functools
from dataclasses import dataclass, field, replace
from typing import Final, Self

from lang_core import Axes, ConfigError, DType, Encoding, ExecutionContext, OpError, Tensor, TensorSpec, checked_choices
from transformer_core.layers._cache import CacheLayout
from transformer_core.layers._places import Places

HEAD_AXES: Final[Axes] = ("dp", "tp", None, None)
"""Axes of a mesh that may cut keys or values [B, K, S, H]."""


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values at fixed capacity S; the entry of a position lies at that place.

    Attributes:
        key: [B, K, S, H]; packed i8 [B, K, S, bytes] with an encoding.
        value: [B, K, S, H]; as ``key``.
        encoding: blocks along the last axis that entries are packed in; None if they are not.
    """

    key: Tensor
    value: Tensor
    encoding: Encoding | None = field(default=None, kw_only=True)

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
        if self.encoding is not None:
            key, value = (ctx.ops.quantize(x, self.encoding) for x in (key, value))
        return replace(self, key=places.written(ctx, self.key, key), value=places.written(ctx, self.value, value))

    def seen(self, ctx: ExecutionContext, places: Places | None, dtype: DType | str) -> tuple[Tensor, Tensor]:
        """Returns the keys and values of the sequences, [B, K, S, H], unpacked."""
        entries = self.tensors if places is None else tuple(places.seen(ctx, x) for x in self.tensors)
        if self.encoding is not None:
            entries = tuple(ctx.ops.dequantize(x, self.encoding, dtype) for x in entries)
        key, value = entries
        return key, value


@dataclass(frozen=True, slots=True)
class RingCache(KVCache):
    """The last entries alone, for a layer with a window: the entry of a position lies at position mod capacity.

    With a window of W keys, calls that append up to T tokens need W + T - 1 places: the first of the new tokens sees W
    keys, and the T - 1 after it must not overwrite these. A call begins at 0, or at most T positions before the end of
    the written entries, padding included.

    Attributes:
        window: W.
    """

    window: int = field(kw_only=True)


@checked_choices
def kv_layout(key: TensorSpec, value: TensorSpec, window: int | None = None, *, packable: bool = False) -> CacheLayout:
    """Returns the layout of a cache with these keys and values, of a layer with a window or without.

    Args:
        key: spec of the keys.
        value: spec of the values.
        window: number of keys that a query sees; all if None.
        packable: whether the layer can read entries packed in blocks.
    """
    return CacheLayout(
        KVCache,
        {"key_cache": key, "value_cache": value},
        window=window,
        axes={"key_cache": HEAD_AXES, "value_cache": HEAD_AXES},
        packable=packable,
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


def quantized_layout(layout: CacheLayout, encoding: Encoding, path: str) -> CacheLayout:
    """Returns the layout of a cache with packed keys and values.

    Args:
        layout: layout of a layer's cache, whole or a ring; one without tensors, or of a state, is returned as it is.
        encoding: encoding of the entries.
        path: path of the layer, for errors.

    Raises:
        ConfigError: the layer keeps anything else, or a head is not whole blocks.
    """
    if not layout.specs or layout.recurrent:
        return layout
    if not layout.packable:
        raise ConfigError(
            f"kv_cache={encoding.name}: {path!r} keeps {', '.join(layout.specs)} that are read as they are: leave out "
            f"kv_cache"
        )
    for name, spec in layout.specs.items():
        if not encoding.takes(spec.shape):
            raise ConfigError(
                f"kv_cache={encoding.name}: {name} of {path!r} has {spec.shape[-1]} numbers per head, and blocks are "
                f"of {encoding.block}: leave out kv_cache"
            )
    specs = {name: encoding.packed(spec) for name, spec in layout.specs.items()}
    return replace(layout, make=functools.partial(layout.make, encoding=encoding), specs=specs)


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
