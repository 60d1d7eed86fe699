"""What a layer keeps between calls, whatever its kind."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from lang_core import Module, Tensor, TensorSpec


class Cache(Protocol):
    """A layer's cache or state: ``KVCache``, ``DeltaState``."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Its tensors, in the order of ``CacheLayout.specs``."""
        ...


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Tensors of a layer's cache.

    Attributes:
        make: function that makes the cache of its tensors.
        specs: specs by name: ``.._cache`` of tensors with an entry per position, which can be written again,
            ``.._state`` of tensors that every token changes as a whole.
        owner: number of the layer whose cache this one reads and which has the tensors; None where it has its own.
        window: number of keys that a query of the layer sees, itself included; all where None.
    """

    make: Callable[..., Cache]
    specs: Mapping[str, TensorSpec]
    owner: int | None = None
    window: int | None = None

    @property
    def recurrent(self) -> bool:
        """Whether there is a state that every token changes for good."""
        return any(name.endswith("_state") for name in self.specs)


@dataclass(frozen=True, slots=True)
class SharedCache:
    """What stands for a cache where a layer reads that of another one.

    Attributes:
        owner: the number of that layer.
        tensors: none.
    """

    owner: int
    tensors: tuple[Tensor, ...] = ()


def shared_layout(owner: int) -> CacheLayout:
    """Of a layer that reads the cache of layer ``owner``."""
    return CacheLayout(functools.partial(SharedCache, owner), {}, owner)


class CachedLayer(Module, ABC):
    """A layer of a decoder: ``forward(ctx, x, step, cache)`` gives the new x and the updated cache.

    Attributes:
        cache_owner: the number of the layer whose cache it reads; it is called with that one then. None: its own.
    """

    cache_owner: int | None = None

    @abstractmethod
    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Of the layer's cache, for B sequences of up to S tokens."""
