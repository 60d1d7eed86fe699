"""Arrays of JAX on devices: made, copied, read and written in place."""

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lang_core import TensorSpec, plain_bools
from run_jax.sessions._partitions import CPU
from runtime import Part

Box = list[tuple[int, int]]
Sharding = jax.sharding.NamedSharding


def placed(array: np.ndarray[Any, Any], sharding: Sharding) -> jax.Array:
    """Copies an array to the devices; the copy does not share memory with it, so the owner may change the array."""
    array = plain_bools(array)
    if sharding.is_fully_addressable:
        # JAX copies in a thread of its own, and not at all if the array lies as its own memory would.
        copied = jax.device_put(array, sharding, may_alias=False).block_until_ready()
        return duplicate(copied).block_until_ready() if _shares(copied, array) else copied
    return jax.make_array_from_callback(array.shape, sharding, lambda index: np.array(array[index]))


class Zeros:
    """Zeros that are allocated when their sharding is known."""

    __slots__ = ("_sharding", "_spec")

    def __init__(self, spec: TensorSpec, sharding: Sharding) -> None:
        """Allocates nothing; ``sharding`` counts if nobody asks for another one first."""
        self._spec = spec
        self._sharding = sharding

    def made(self, sharding: Sharding | None) -> jax.Array:
        """Allocates them on the devices, each its part."""
        return jnp.zeros(self._spec.shape, self._spec.dtype.numpy, device=sharding or self._sharding)

    def is_deleted(self) -> bool:
        """Returns False: nothing was donated."""
        return False


def settled(array: jax.Array | Zeros, sharding: Sharding | None = None) -> jax.Array:
    """Returns an array as it lies, or in another sharding."""
    if isinstance(array, Zeros):
        return array.made(sharding)
    # Equal ones are the usual case, and seven times as quickly found so.
    if sharding is None or array.sharding == sharding or array.sharding.is_equivalent_to(sharding, array.ndim):
        return array
    return jax.device_put(array, sharding)


def duplicate(array: jax.Array) -> jax.Array:
    """Copies an array on its devices."""
    return jnp.copy(array)


def fetch(array: jax.Array) -> np.ndarray[Any, Any]:
    """Copies the contents to the host, including the parts of other processes."""
    return read(array, ())


def read(array: jax.Array, part: Part) -> np.ndarray[Any, Any]:
    """Copies a part to the host.

    On CPUs it is read in place: JAX never updates an array in place again after NumPy has seen it.
    """
    whole = _whole(array)
    if whole is not None:
        return _seen(whole)[part].copy()
    if not array.is_fully_addressable:
        return read(_replicated(array), part)
    gathered = np.empty(array.shape, array.dtype)
    for index, shard in _shards(array):
        gathered[index] = _seen(shard)
    return gathered[part].copy()


def write(array: jax.Array, part: Part, values: np.ndarray[Any, Any]) -> jax.Array:
    """Replaces a part; returns the array, which is a new one if the host does not reach the devices' memory."""
    if reached(array):
        box = _box(array.shape, part)
        filled = values.reshape([stop - start for start, stop in box])
        for index, shard in _shards(array):
            _write_shard(_seen(shard), _box(array.shape, index), filled, box)
        return array
    contents = fetch(array)
    contents[part] = values
    assert isinstance(array.sharding, jax.sharding.NamedSharding)
    return placed(contents, array.sharding)


def reached(array: jax.Array) -> bool:
    """Returns whether the host reaches the memory of the array's devices."""
    return all(device.platform == CPU for device in array.sharding.device_set)


def addresses(array: jax.Array) -> tuple[int, ...] | None:
    """Returns the address of each part in this process; None if the host does not reach it."""
    if not reached(array):
        return None
    return tuple(shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards)


def _shares(array: jax.Array, memory: np.ndarray[Any, Any]) -> bool:
    """Returns whether a part of an array lies in the memory of one of NumPy."""
    first, last = np.lib.array_utils.byte_bounds(memory)
    return array.size > 0 and any(first <= address < last for address in addresses(array) or ())


def _whole(array: jax.Array) -> jax.Array | None:
    """Returns a part of this process that is all of the array; None if there is none."""
    if array.is_fully_replicated or len(array.sharding.device_set) == 1:
        return array.addressable_data(0)
    return None


def _shards(array: jax.Array) -> Iterator[tuple[tuple[slice, ...], jax.Array]]:
    for shard in array.addressable_shards:
        yield shard.index, shard.data


def _seen(shard: jax.Array) -> np.ndarray[Any, Any]:
    """Returns the memory of an array on one device, or a copy if the host cannot reach it."""
    shard.block_until_ready()
    if not reached(shard) or not shard.size:
        return np.asarray(shard)
    nbytes = math.prod(shard.shape) * shard.dtype.itemsize
    memory: Any = (ctypes.c_char * nbytes).from_address(shard.unsafe_buffer_pointer())
    return np.frombuffer(memory, shard.dtype).reshape(shard.shape)


def _box(shape: tuple[int, ...], part: Part) -> list[tuple[int, int]]:
    """Returns the first place and the one behind the last of a part, per axis."""
    whole = (*part, *[slice(None)] * (len(shape) - len(part)))
    return [
        axis.indices(size)[:2] if isinstance(axis, slice) else (axis, axis + 1)
        for axis, size in zip(whole, shape, strict=True)
    ]


def _write_shard(memory: np.ndarray[Any, Any], place: Box, values: np.ndarray[Any, Any], box: Box) -> None:
    """Copies a shard's part of the values; both have their position in the whole."""
    common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(place, box, strict=True)]
    if all(start < stop for start, stop in common):
        memory[_within(common, place)] = values[_within(common, box)]


def _within(common: Box, place: Box) -> tuple[slice, ...]:
    return tuple(slice(start - low, stop - low) for (start, stop), (low, _) in zip(common, place, strict=True))


def _replicated(array: jax.Array) -> jax.Array:
    """Gathers the parts of all processes; all of them must call it."""
    assert isinstance(array.sharding, jax.sharding.NamedSharding)
    everywhere = jax.sharding.NamedSharding(array.sharding.mesh, jax.sharding.PartitionSpec())
    return jax.jit(lambda x: x, out_shardings=everywhere)(array)
