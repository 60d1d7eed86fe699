"""Names for running calls: scopes in contexts and in JAX, and eager profiles."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from autotune.kernel import named_scope


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


@contextmanager
def labelled(label: str, ctx: Any = None, jax: bool = False) -> Iterator[None]:
    """Names what runs, or is recorded, inside.

    Args:
        label: nothing happens if empty.
        ctx: the context whose ``module_path`` is to end with the label.
        jax: whether JAX's names are to have it, too.
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
