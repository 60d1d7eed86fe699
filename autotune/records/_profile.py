"""Names for running calls: scopes in contexts and in JAX, and eager profiles."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from autotune.kernel import named_scope
from lang_core import checked_choices


class ProfiledCall(NamedTuple):
    """Call of a kernel in a profile.

    Attributes:
        label: label of the call; the op if labels are off.
        cfg: configuration.
        seconds: duration of the call, or of its recording.
    """

    label: str
    cfg: Any
    seconds: float


PROFILE: ContextVar[list[ProfiledCall] | None] = ContextVar("tapeline_kernel_profile", default=None)
"""List that calls are noted in with their times in seconds, or None where nothing is profiled."""


@contextmanager
def profile() -> Iterator[list[ProfiledCall]]:
    """Collects the calls of kernels within a ``with`` block, in the order in which they end."""
    calls: list[ProfiledCall] = []
    token = PROFILE.set(calls)
    try:
        yield calls
    finally:
        PROFILE.reset(token)


@checked_choices
@contextmanager
def labelled(label: str, ctx: Any = None, jax: bool = False) -> Iterator[None]:
    """Labels the calls that run or are recorded within a ``with`` block.

    Args:
        label: name; nothing happens if empty.
        ctx: context; its ``module_path`` gets the label as its last part.
        jax: whether JAX's named scopes get the label, too.
    """
    if not label:
        yield
        return
    before = "" if ctx is None else ctx.module_path
    if ctx is not None:
        ctx.module_path = f"{before}.{label}" if before else label
    try:
        if jax:
            with named_scope(label):
                yield
        else:
            yield
    finally:
        if ctx is not None:
            ctx.module_path = before
