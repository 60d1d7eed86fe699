"""Joins this process with the others in JAX's distributed engine."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jax
import jaxlib
import numpy as np

from lang_core import InputError, ProcessError
from run_jax.processes._meeting import Meeting, meet
from run_jax.processes._place import RankPlacement

_CONNECT: Final = 60  # seconds; all ranks are there when JAX begins to connect them
_LOOPBACK: Final = {"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1", "[::1]": "[::1]"}
"""Address at which the coordination service listens, by rank 0's host where that is this machine alone."""


def join(place: RankPlacement, facts: Mapping[str, Any], *, secret: bytes = b"", timeout: float = 60) -> Meeting:
    """Meets the other ranks, and makes the devices of all of them JAX's devices.

    To be called before JAX is asked for a device. CPUs speak to each other through gloo.

    Args:
        place: place of this process.
        facts: facts that all ranks must share, beside the versions of Python, JAX and NumPy and the number of ranks.
        secret: secret of the run; without one whoever reaches the port may be a rank, as it is with JAX's own.
        timeout: seconds to wait for the other ranks.

    Raises:
        InputError: the ranks differ in a fact or a version; or nobody answers at the coordinator's address.
        ProcessError: some ranks have not come, or JAX does not connect them.
    """
    if jax.distributed.is_initialized():
        raise InputError("this process is a rank already: join once, before anything is computed")
    meeting = meet(place, {**_versions(place), **facts}, secret, timeout)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)
    host, _, port = meeting.service.rpartition(":")
    try:
        jax.distributed.initialize(
            meeting.service,
            num_processes=place.processes,
            process_id=place.rank,
            local_device_ids=place.local_device_ids,
            cluster_detection_method="deactivate",
            initialization_timeout=_CONNECT,
            coordinator_bind_address=f"{_LOOPBACK[host]}:{port}" if host in _LOOPBACK else None,
        )
    except RuntimeError as error:
        raise ProcessError(f"rank {place.rank}: JAX does not connect the ranks at {meeting.service}: {error}") from None
    return meeting


def connect_devices() -> None:
    """Makes the devices of all ranks known to each; all of them have to do so, and it waits for them."""
    with batch_threads():
        jax.devices()


@contextlib.contextmanager
def batch_threads() -> Iterator[None]:
    """Has threads that begin inside take turns: none that wakes up ends the turn of another one; on Linux alone.

    gloo's thread asks for a connection's lock again and again, without sleeping, once the other side has sent
    something. If it woke up on the core of the thread that holds the lock, that thread waited for its next time slice,
    3 ms, at every exchange.
    """
    # A policy that somebody chose stays.
    if not hasattr(os, "SCHED_BATCH") or (before := os.sched_getscheduler(0)) != os.SCHED_OTHER:
        yield
        return
    with contextlib.suppress(OSError):  # if a container forbids it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, before, os.sched_param(0))


def leave() -> None:
    """Takes leave of the other ranks, all of which have to do so."""
    jax.distributed.shutdown()


def _versions(place: RankPlacement) -> dict[str, Any]:
    python = ".".join(map(str, sys.version_info[:2]))
    return {
        "num_processes": place.processes,
        "python": python,
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "numpy": np.__version__,
    }
