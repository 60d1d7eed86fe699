"""The named scope of a call: in the module path of a context, and in JAX's names."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autotune._foreign import named_scope


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
