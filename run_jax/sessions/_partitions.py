"""Devices of a session and their shards: a mesh, and the axes along which tensors are cut."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import numpy as np

from lang_core import DeviceError, InputError, MeshShape, TensorSpec

Axes = Sequence[str | None]
"""Per dimension of a tensor the axis of the mesh along which it is cut, or part of one; None where it is whole."""

_PRIME: Final = "."  # before the number of a factor, in names of axes that are taken apart

CPU: Final = "cpu"
PLATFORMS: Final = (CPU, "cuda", "rocm", "tpu")
"""Names of JAX's kinds of devices."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Mesh of devices, and how tensors are cut along its axes; tensors that are not named are replicated.

    Attributes:
        mesh: devices by axis.
        parameters: axes of parameters by name.
        values: axes of arguments and results by the entry point's name and theirs.
    """

    mesh: jax.sharding.Mesh
    parameters: Mapping[str, Axes] = field(default_factory=dict)
    values: Mapping[tuple[str, str], Axes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables = (*self.parameters.values(), *self.values.values())
        if any(axis is not None and axis != MeshShape.axis_of(axis) for axes in tables for axis in axes):
            object.__setattr__(self, "mesh", _taken_apart(self.mesh))

    @property
    def platform(self) -> str:
        """Kind of the devices, one of ``PLATFORMS``."""
        return platform_of(self.mesh.devices.flat[0])

    @property
    def whole(self) -> jax.sharding.NamedSharding:
        """Sharding of replicated tensors."""
        return self._sharding(())

    def parameter(self, name: str, spec: TensorSpec) -> jax.sharding.NamedSharding:
        """Returns the sharding of a parameter.

        Raises:
            InputError: the mesh does not divide it.
        """
        return self._checked(f"parameter {name!r}", self.parameters.get(name, ()), spec)

    def value(self, entry_point: str, name: str, spec: TensorSpec) -> jax.sharding.NamedSharding:
        """Returns the sharding of an argument or a result of an entry point.

        Raises:
            InputError: the mesh does not divide it.
        """
        return self._checked(f"{name!r} of {entry_point!r}", self.values.get((entry_point, name), ()), spec)

    def _checked(self, what: str, axes: Axes, spec: TensorSpec) -> jax.sharding.NamedSharding:
        if axes and len(axes) != spec.ndim:
            raise InputError(f"{what} is {spec!r}, and the table of axes has {len(axes)} of it: export again")
        for dimension, (axis, size) in enumerate(zip(axes, spec.shape, strict=False)):
            parts = math.prod(self.mesh.shape[name] for name in self._names(axis))
            if size % parts:
                fitting = [str(n) for n in range(1, min(size, 64) + 1) if size % n == 0]
                raise InputError(
                    f"mesh: {axis}={parts} does not divide dimension {dimension} of {what}, {spec!r}: {size} goes in "
                    f"{', '.join(fitting)} parts: take one of these for {axis}"
                )
        return self._sharding(axes)

    def _sharding(self, axes: Axes) -> jax.sharding.NamedSharding:
        spec = jax.sharding.PartitionSpec(*(self._names(axis) or None for axis in axes))
        return jax.sharding.NamedSharding(self.mesh, spec)

    def _names(self, axis: str | None) -> tuple[str, ...]:
        """Returns the names that JAX's mesh has for an axis or part of one."""
        if axis is None:
            return ()
        whole = MeshShape.axis_of(axis)
        own = tuple(name for name in self.mesh.axis_names if name.partition(_PRIME)[0] == whole)
        if axis == whole or not own:
            return own
        size = math.prod(self.mesh.shape[name] for name in own)
        return own[: len(MeshShape.of({whole: size}).factors_of(axis))]


def _taken_apart(mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
    """Returns the mesh with an axis for each prime factor of each axis, so that part of one can cut a dimension."""
    shape = MeshShape.of(dict(mesh.shape))
    factors = [(f"{axis}{_PRIME}{i}", n) for axis, _ in shape for i, n in enumerate(shape.factors_of(axis))]
    names, sizes = zip(*factors, strict=True)
    return jax.sharding.Mesh(mesh.devices.reshape(sizes), names)


def single(platform: str | None = None) -> Partitions:
    """Returns the first device of a kind, and everything whole on it.

    Args:
        platform: one of ``PLATFORMS``; JAX's default if None.

    Raises:
        DeviceError: there is none.
    """
    return Partitions(device_mesh({}, platform))


def device_mesh(axes: Mapping[str, int], platform: str | None = None) -> jax.sharding.Mesh:
    """Returns a mesh of the first devices of a kind, those of all processes.

    Args:
        axes: size of each axis; one device if there is none.
        platform: one of ``PLATFORMS``; JAX's default if None.

    Raises:
        DeviceError: there are fewer.
    """
    devices = devices_of(platform)
    sizes = list(axes.values()) or [1]
    count = int(np.prod(sizes))
    if len(devices) < count:
        asked = ", ".join(f"{axis}={size}" for axis, size in axes.items())
        raise DeviceError(
            f"mesh={asked}: needs {count} devices, JAX has {len(devices)} ({devices[0].platform}): take a smaller one, "
            f"or run more processes; XLA_FLAGS=--xla_force_host_platform_device_count={count} splits a CPU to try"
        )
    return jax.sharding.Mesh(np.array(devices[:count]).reshape(sizes), tuple(axes) or ("device",))


def devices_of(platform: str | None) -> list[Any]:
    """Returns JAX's devices of a kind.

    Raises:
        DeviceError: there are none.
    """
    try:
        return jax.devices(platform)
    except RuntimeError as error:
        raise DeviceError(
            f"device {platform!r}: JAX has none ({error}): install JAX for it, or take another device"
        ) from None


def platform_of(device: Any) -> str:
    """Returns the kind of a device, one of ``PLATFORMS``; JAX calls those of CUDA and ROCm ``gpu``."""
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"
