"""The processes of a training: one of them writes files, and all wait for each other."""

import jax
from jax.experimental import multihost_utils


def is_writer() -> bool:
    """Returns whether this process is the one that writes files and prints."""
    return jax.process_index() == 0


def wait_for_all(name: str) -> None:
    """Waits until every process has come to the place of this name."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def device_names() -> tuple[str, int, int]:
    """Returns the platform of JAX's devices, their number, and the number of processes."""
    devices = jax.devices()
    return devices[0].platform, len(devices), jax.process_count()
