"""Eager profiles: which calls ran, with which configuration, and how long."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple


class ProfiledCall(NamedTuple):
    """A call.

    Attributes:
        label: see ``label``; the op where labels are off.
        cfg: the configuration.
        seconds: that it took; of a recorded call, to record it.
    """

    label: str
    cfg: Any
    seconds: float


PROFILE: ContextVar[list[ProfiledCall] | None] = ContextVar("tapeline_kernel_profile", default=None)


@contextmanager
def profile() -> Iterator[list[ProfiledCall]]:
    """Collects the calls of kernels inside, in the order in which they ended."""
    calls: list[ProfiledCall] = []
    token = PROFILE.set(calls)
    try:
        yield calls
    finally:
        PROFILE.reset(token)
