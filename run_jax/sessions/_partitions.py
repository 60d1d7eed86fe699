"""Devices of a session and what each holds: a mesh, and the axes along which tensors are cut."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jax
import numpy as np

from lang_core import DeviceError, InputError, TensorSpec

Axes = Sequence[str | None]
"""Per dimension of a tensor the axis of the mesh along which it is cut; None where it is whole."""

PLATFORMS: Final = ("cpu", "cuda", "rocm", "tpu")
"""Names of JAX's kinds of devices."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Mesh of devices, and how tensors are cut along its axes; what is not named is whole on every device.

    Attributes:
        mesh: devices by axis.
        parameters: axes of parameters by name.
        values: axes of arguments and results by the entry point's name and theirs.
    """

    mesh: jax.sharding.Mesh
    parameters: Mapping[str, Axes] = field(default_factory=dict)
    values: Mapping[tuple[str, str], Axes] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        """Kind of the devices, one of ``PLATFORMS``."""
        return platform_of(self.mesh.devices.flat[0])

    @property
    def whole(self) -> jax.sharding.NamedSharding:
        """Sharding of what is whole on every device."""
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
            parts = 1 if axis is None else self.mesh.shape.get(axis, 1)
            if size % parts:
                fitting = [str(n) for n in range(1, min(size, 64) + 1) if size % n == 0]
                raise InputError(
                    f"mesh: {axis}={parts} does not divide dimension {dimension} of {what}, {spec!r}: {size} goes in "
                    f"{', '.join(fitting)} parts: take one of these for {axis}"
                )
        return self._sharding(axes)

    def _sharding(self, axes: Axes) -> jax.sharding.NamedSharding:
        known = [axis if axis in self.mesh.shape else None for axis in axes]
        return jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*known))


def single(platform: str | None = None) -> Partitions:
    """Returns the first device of a kind, and everything whole on it.

    Args:
        platform: one of ``PLATFORMS``; JAX's default where None.

    Raises:
        DeviceError: there is none.
    """
    return Partitions(device_mesh({}, platform))


def device_mesh(axes: Mapping[str, int], platform: str | None = None) -> jax.sharding.Mesh:
    """Returns a mesh of the first devices of a kind, those of all processes.

    Args:
        axes: size of each axis; one device where there is none.
        platform: one of ``PLATFORMS``; JAX's default where None.

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
