"""Devices that JAX sees."""

from collections import Counter

import jax


def jax_devices() -> list[str]:
    """Returns the kinds of JAX's devices with their number.

    >>> jax_devices()
    ['cpu: 1 x cpu']
    """
    kinds = Counter((device.platform, device.device_kind) for device in jax.devices())
    return [f"{platform}: {number} x {kind}" for (platform, kind), number in kinds.items()]
