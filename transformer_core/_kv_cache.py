"""The cache of keys and values of one layer."""

from dataclasses import dataclass

from lang_core import DType, ExecutionContext, OpError, Tensor, TensorSpec
from transformer_core._cache import CacheLayout

Starts = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values at fixed capacity S.

    Attributes:
        key: [B, K, S, H].
        value: [B, K, S, H].
    """

    key: Tensor
    value: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """``key`` and ``value``."""
        return self.key, self.value

    @property
    def capacity(self) -> int:
        """S."""
        return self.key.shape[2]

    def updated(self, ctx: ExecutionContext, key: Tensor, value: Tensor, starts: Starts) -> "KVCache":
        """The cache with T new entries.

        Args:
            ctx: where to compute.
            key: [B, K, T, H].
            value: [B, K, T, H].
            starts: of the position they begin at, from ``cache_starts``. ``position + T`` must not exceed S: a
                position that does is moved down, and older entries are overwritten.

        Raises:
            OpError: there are more new entries than the cache can hold.
        """
        if key.shape[2] > self.capacity:
            raise OpError(f"a KV cache of capacity {self.capacity} cannot take {key.shape[2]} entries at once")
        update = ctx.ops.dynamic_update_slice
        return KVCache(update(self.key, key, starts), update(self.value, value, starts))


def kv_layout(key: TensorSpec, value: TensorSpec) -> CacheLayout:
    """Of a cache with such keys and values."""
    return CacheLayout(KVCache, {"key_cache": key, "value_cache": value})


def cache_spec(batch: int, kv_heads: int, capacity: int, head_size: int, dtype: DType | str) -> TensorSpec:
    """Of the keys and of the values of one layer: [B, K, S, H]."""
    return TensorSpec((batch, kv_heads, capacity, head_size), dtype)


def cache_starts(ctx: ExecutionContext, position: Tensor) -> Starts:
    """Where entries from ``position`` (rank-0 i32) on lie in a cache; made once, for all layers."""
    zero = ctx.ops.constant(0, position.dtype)
    return zero, zero, position, zero
