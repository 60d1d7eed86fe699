"""The mesh of devices of a training: which rows and which parts of parameters each of them holds."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lang_core import ConfigError, DeviceError, MeshShape

_OF_BATCH: Final = ("dp", "fsdp")
_PARAMETERS: Final = "fsdp"


class TrainingMesh:
    """Devices of JAX in a mesh, and the shardings of a training's arrays on them.

    Rows of the batch lie along ``dp`` and ``fsdp``. Parameters are cut along ``tp`` as the model's table of axes says,
    and along ``fsdp`` in their largest other dimension that it divides; moments lie as their parameters.

    Args:
        shape: axes and sizes; one device if None.
        axes: table of axes, per parameter an axis or None for each dimension.

    Raises:
        DeviceError: JAX has fewer devices, or the processes' devices are not all used.
        ConfigError: ``ep``, or ``tp`` without a table of axes.
    """

    def __init__(self, shape: MeshShape | None = None, axes: Mapping[str, Sequence[str | None]] | None = None) -> None:
        self.shape: Final = shape or MeshShape.of({"dp": 1})
        self._axes: Final = dict(axes or {})
        if self.shape.size_of("ep") > 1:
            raise ConfigError(f"mesh {self.shape}: training has no axis ep: give dp, fsdp and tp")
        if self.shape.size_of("tp") > 1 and not self._axes:
            raise ConfigError(f"mesh {self.shape}: the model has no table of axes for tp: give dp and fsdp")
        self.mesh: Final = Mesh(_devices(self.shape), self.shape.names)

    @property
    def rows(self) -> int:
        """Number of parts that a batch is cut into."""
        return self.shape.size_of("dp") * self.shape.size_of("fsdp")

    @property
    def is_one_per_process(self) -> bool:
        """True if each process has one device, which holds all parameters."""
        return self.shape.size == self.shape.size_of("dp") == jax.process_count()

    def stack(self, own: jax.Array) -> jax.Array:
        """Returns the parts [1, ..] of the devices along dp, each in its process, as one array [dp, ..]."""
        sharding = NamedSharding(self.mesh, PartitionSpec("dp"))
        return jax.make_array_from_single_device_arrays((self.shape.size, *own.shape[1:]), sharding, [own])

    def replicated(self) -> NamedSharding:
        """Returns the sharding of replicated arrays."""
        return NamedSharding(self.mesh, PartitionSpec())

    def batch(self) -> NamedSharding:
        """Returns the sharding of a batch [B, ..], cut by rows."""
        return NamedSharding(self.mesh, PartitionSpec(tuple(n for n in _OF_BATCH if n in self.shape.names)))

    def parameter(self, path: str, shape: Sequence[int]) -> NamedSharding:
        """Returns the sharding in which a parameter of this path and shape is held.

        Raises:
            ConfigError: an axis does not divide its dimension.
        """
        axes, size = self._given(path, shape), self.shape.size_of(_PARAMETERS)
        free = [d for d, axis in enumerate(axes) if axis is None and shape[d] % size == 0]
        if size > 1 and free:
            axes[max(free, key=lambda d: shape[d])] = _PARAMETERS
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def gathered(self, path: str, shape: Sequence[int]) -> NamedSharding:
        """Returns the sharding in which a parameter is computed with: whole along ``fsdp``."""
        return NamedSharding(self.mesh, PartitionSpec(*self._given(path, shape)))

    def place(self, array: np.ndarray[Any, Any], sharding: NamedSharding) -> jax.Array:
        """Returns an array of any shape, which all processes have, on the devices; each process places its own part."""
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def _given(self, path: str, shape: Sequence[int]) -> list[str | None]:
        given = self._axes.get(path, (None,) * len(shape))
        axes = [axis if axis in self.shape.names else None for axis in given]
        self.shape.local_shape(shape, axes)
        return axes


def _devices(shape: MeshShape) -> Any:
    devices = jax.devices()
    processes = jax.process_count()
    if shape.size > len(devices) or (processes > 1 and shape.size != len(devices)):
        kind, many = devices[0].platform, "" if processes == 1 else f" in {processes} processes"
        raise DeviceError(
            f"mesh {shape}: is of {shape.size} devices, and JAX has {len(devices)} ({kind}){many}: give a mesh of as "
            "many, or start as many processes; JAX_NUM_CPU_DEVICES in the environment makes one CPU several devices"
        )
    return np.array(devices[: shape.size]).reshape([size for _, size in shape.axes])
