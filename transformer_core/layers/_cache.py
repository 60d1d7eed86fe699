"""Caches and states that layers keep between calls."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lang_core import Axes, ExecutionContext, Module, Tensor, TensorSpec, checked_choices


class Cache(Protocol):
    """Cache or state of a layer, such as ``KVCache`` and ``DeltaState``."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors, in the order and the shapes of ``CacheLayout.specs``."""
        ...


@checked_choices
@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Tensors of a layer's cache.

    Attributes:
        make: function that makes the cache of its tensors.
        specs: specs by name: ``.._cache`` of tensors with an entry per position, which can be written again,
            ``.._state`` of tensors that every token changes as a whole.
        owner: number of the layer that owns the cache tensors that this layer reads; None if it has its own.
        window: number of keys that a query of the layer sees, itself included; all if None.
        axes: per name the axis of a mesh that may cut each dimension: sequences by ``dp``, heads or channels by ``tp``.
        packable: True if the layer can read its keys and values packed in blocks.
    """

    make: Callable[..., Cache]
    specs: Mapping[str, TensorSpec]
    owner: int | None = None
    window: int | None = None
    axes: Mapping[str, Axes] = field(default_factory=dict)
    packable: bool = False

    @property
    def recurrent(self) -> bool:
        """True if there is a state, which every token changes for good."""
        return any(name.endswith("_state") for name in self.specs)


class State(ABC):
    """State of a layer: every token changes it as a whole, and padding must leave it as it is."""

    __slots__ = ()

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors, in the order and the shapes of ``CacheLayout.specs``."""


class StateMixer(Module, ABC):
    """Module that mixes tokens by a state, in a scan over many of them or a step of one."""

    @abstractmethod
    def forward(
        self, ctx: ExecutionContext, x: Tensor, state: Any = None, count: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Runs over the tokens of x, which follow those in ``state``.

        Args:
            ctx: context that computes.
            x: [B, T, D].
            state: state of this module, or None.
            count: i32 of rank 0 or [B], number of real tokens; padding after them does not change the state. T if
                None.

        Returns:
            [B, T, D], and the new state (None without one).
        """

    @abstractmethod
    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the state, for B sequences."""


@dataclass(frozen=True, slots=True)
class SharedCache:
    """Placeholder for the cache of a layer that reads another layer's cache.

    Attributes:
        owner: number of the other layer.
        tensors: always empty.
    """

    owner: int
    tensors: tuple[Tensor, ...] = ()


def shared_layout(owner: int) -> CacheLayout:
    """Returns the layout of a layer that reads the cache of layer ``owner``."""
    return CacheLayout(functools.partial(SharedCache, owner), {}, owner)


class CachedLayer(Module, ABC):
    """Layer of a decoder: ``forward(ctx, x, step, cache)`` returns the new x and the updated cache.

    Attributes:
        cache_owner: number of the layer that owns its cache; None: its own.
    """

    cache_owner: int | None = None

    @abstractmethod
    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of the layer's cache, for B sequences of up to S tokens."""


def row_taken(ctx: ExecutionContext, whole: Tensor, row: Tensor) -> Tensor:
    """Returns rows [B, ..] of a tensor at ``row`` i32 [B], or [1, ..] at one of rank 0."""
    if row.ndim:
        return ctx.ops.take(whole, row, 0)
    return ctx.ops.dynamic_slice(whole, (row, *[0] * (whole.ndim - 1)), (1, *whole.shape[1:]))


def row_put(ctx: ExecutionContext, whole: Tensor, new: Tensor, row: Tensor) -> Tensor:
    """Returns a tensor with rows [B, ..] replaced, at distinct ``row`` i32 [B], or [1, ..] at one of rank 0."""
    ops = ctx.ops
    if not row.ndim:
        return ops.dynamic_update_slice(whole, new, (row, *[0] * (whole.ndim - 1)))
    count, size = row.shape[0], math.prod(whole.shape[1:])
    lines = ops.reshape(whole, (1, whole.shape[0], size))
    new = ops.reshape(new, (1, count, size))
    return ops.reshape(ops.put(lines, ops.reshape(row, (1, count)), new, 1), whole.shape)
