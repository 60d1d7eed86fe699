"""Entry points that copy and clear rows of caches."""

from collections.abc import Sequence
from typing import Final

from lang_core import Argument, EntryPoint, ExecutionContext, Tensor, TensorSpec
from transformer_core.layers._cache import row_put, row_taken

COPY_ROW: Final = "copy_row"
CLEAR_ROW: Final = "clear_row"


def with_row_copies(points: Sequence[EntryPoint], slots: int) -> tuple[EntryPoint, ...]:
    """Returns entry points on rows of caches, and those that copy a row, and clear its states if there are some.

    Args:
        points: entry points that have all the same caches.
        slots: number of rows of the caches, or of pages.
    """
    caches = tuple(argument for argument in points[0].arguments if argument.alias_result is not None)
    states = [cache.name for cache in caches if cache.name.endswith("_state")]
    clears = [_clear_row(caches, slots)] if states else []
    return *points, _copy_row(caches, slots), *clears


def _copy_row(caches: Sequence[Argument], slots: int) -> EntryPoint:
    """Returns ``copy_row(source, target, caches)``: the caches with row ``target`` as row ``source``, another one.

    IREE makes a slice and its update one copy within the cache's buffer, and refuses a copy onto itself.
    """

    def copied(ctx: ExecutionContext, source: Tensor, target: Tensor, *tensors: Tensor) -> dict[str, Tensor]:
        rows = [row_put(ctx, whole, row_taken(ctx, whole, source), target) for whole in tensors]
        return dict(zip([cache.name for cache in caches], rows, strict=True))

    return EntryPoint(COPY_ROW, copied, (_row("source", slots), _row("target", slots), *caches))


def _clear_row(caches: Sequence[Argument], slots: int) -> EntryPoint:
    """Returns ``clear_row(row, caches)``: the caches with zeros for the states of a row."""

    def cleared(ctx: ExecutionContext, row: Tensor, *tensors: Tensor) -> dict[str, Tensor]:
        results = {}
        for cache, whole in zip(caches, tensors, strict=True):
            is_state = cache.name.endswith("_state")
            zeros = ctx.ops.zeros((1, *whole.shape[1:]), whole.dtype) if is_state else None
            results[cache.name] = whole if zeros is None else row_put(ctx, whole, zeros, row)
        return results

    return EntryPoint(CLEAR_ROW, cleared, (_row("row", slots), *caches))


def _row(name: str, slots: int) -> Argument:
    return Argument(name, TensorSpec((), "i32"), kind="scalar", bounds=(0, slots - 1))
