"""Ops beside ops with which IREE fuses them: each alone is right, and together they are not on some device.

The faults are ``parts_off_vectors``, ``product_of_widened``, ``take_before_reduction`` and ``ordered_parts`` of
compile_hlo/quirks.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from lang_core import DType, bf16, f32, i8, i32, u8
from tests.emission._cases import Array, Case, small

Step = Callable[[Any, Any], Any]


def _tripled(c: Any, x: Any) -> Any:
    return c.ops.mul(x, 3.0)


def _product(name: str, dtype: DType, made: Step, rows: int, inner: int, columns: int) -> Case:
    """A product with a right operand that is made of another dtype."""

    def fn(c: Any, x: Any, y: Any) -> Any:
        return c.ops.dot_general(x, made(c, y), ((1,), (0,)))

    inputs = small(f32, rows, inner), small(dtype, inner, columns)
    return Case("dot_general", f"dot_general_of_{name}_{dtype.name}_{rows}x{inner}x{columns}", f32, fn, inputs, 8)


def _wide(then: Step) -> Step:
    return lambda c, x: then(c, c.ops.cast(x, "f32"))


_MADE: Final[dict[str, Step]] = {
    "scaled": _wide(_tripled),
    "promoted": lambda c, x: c.ops.mul(x, c.ops.iota((1, x.shape[1]), 1, "f32")),
    "negated": _wide(lambda c, x: c.ops.negate(x)),
    "chosen": _wide(lambda c, x: c.ops.select(c.ops.greater(x, 0.0), x, 2.0)),
    "cut": _wide(lambda c, x: c.ops.slice(c.ops.concat((x, x), 0), (0, 0), x.shape)),
    "turned": _wide(lambda c, x: c.ops.reshape(_tripled(c, c.ops.reshape(x, (1, *x.shape))), x.shape)),
    "integers": lambda c, x: _tripled(c, c.ops.cast(c.ops.cast(x, "i32"), "f32")),
}


def _products() -> Iterator[Case]:
    for name, made in _MADE.items():
        yield _product(name, i8 if name == "integers" else bf16, made, 7, 33, 5)
    yield _product("scaled", i8, _MADE["scaled"], 4, 3, 2)
    yield _product("scaled", u8, _MADE["scaled"], 4, 3, 2)
    batched = lambda c, x, y: c.ops.dot_general(x, _MADE["scaled"](c, y), ((2,), (1,)), ((0,), (0,)))  # noqa: E731
    yield Case("dot_general", "dot_general_of_batches", f32, batched, (small(f32, 3, 4, 3), small(bf16, 3, 3, 2)), 8)


def _part(name: str, fn: Callable[..., Any], *inputs: Array) -> Case:
    return Case("slice", f"part_{name}", f32, fn, inputs)


def _parts() -> Iterator[Case]:
    """Parts that begin in the middle of four elements, computed with before or after."""
    x, rows, z = small(f32, 4, 40), small(f32, 68, 6), small(f32, 32, 5)
    yield _part("of_rows", lambda c, x: _tripled(c, c.ops.slice(x, (3, 0), (67, 6))), rows)
    yield _part("of_computed_rows", lambda c, x: c.ops.slice(_tripled(c, x), (3, 0), (67, 6)), rows)
    yield _part("of_columns", lambda c, x: _tripled(c, c.ops.slice(x, (0, 1), (4, 33))), x)
    yield _part("split", lambda c, x: [_tripled(c, y) for y in c.ops.split(x, (3, 64, 1), 0)], rows)
    at = small(i32)
    at[...] = 3
    yield _part("somewhere", lambda c, x, p: _tripled(c, c.ops.dynamic_slice(x, [0, p], (4, 32))), x, at)
    yield _part("of_joined_rows", lambda c, z: c.ops.concat((c.ops.slice(z, (0, 0), (1, 5)), _tripled(c, z)), 0), z)
    update = lambda c, x, z: c.ops.dynamic_update_slice(x, _tripled(c, z), [1, 0])  # noqa: E731
    yield _part("written", update, small(f32, 36, 5), z)
    yield _part("padded", lambda c, x: c.ops.pad(_tripled(c, x), (0, 3), (0, 1)), x)
    yield Case("cumsum", "part_summed", f32, lambda c, x: c.ops.cumsum(x, 0), (small(f32, 33, 5),), 8)


def _reductions() -> Iterator[Case]:
    """Yields reductions of rows that were just looked up."""
    rows = np.array([[3, 1, 2, 0, 5]], np.int32)
    normed = lambda c, x, i: c.ops.rms_norm(c.ops.take(x, i, 0), None, 1e-5)  # noqa: E731
    yield Case("take", "take_before_norm", f32, normed, (small(f32, 11, 64), rows), 64)


def _put_and_padded(c: Any, x: Any, new: Any) -> Any:
    put = c.ops.put(x, c.ops.constant([[3, 1]], "i32"), new, 1)
    return c.ops.pad(c.ops.reshape(put, x.shape[1:]), (0, 0), (1, 0))


def _sorted_and_written(c: Any, x: Any, at: Any) -> Any:
    room = c.ops.broadcast(c.ops.constant(0.0, "f32"), (9, 4))
    return c.ops.dynamic_update_slice(room, c.ops.sort(x, 1)[0], [at, 0])


def _put_into_part(c: Any, x: Any, new: Any) -> Any:
    return c.ops.put(c.ops.slice(x, (0, 1, 0), (1, 6, 4)), c.ops.constant([[3, 1]], "i32"), new, 1)


def _ordered() -> Iterator[Case]:
    """Yields sorts of parts and puts into them, paddings of their results, and an update with one."""
    padded = lambda c, x: c.ops.pad(c.ops.sort(x, 1)[0], (0, 0), (1, 0))  # noqa: E731
    yield Case("pad", "pad_sorted_f32", f32, padded, (small(f32, 5, 4),))
    yield Case("pad", "pad_put_f32", f32, _put_and_padded, (small(f32, 1, 5, 4), small(f32, 1, 2, 4)))
    sorted_part = lambda c, x: c.ops.sort(c.ops.slice(x, (1, 0), (6, 4)), 1)[0]  # noqa: E731
    yield Case("sort", "sort_part_f32", f32, sorted_part, (small(f32, 9, 4),))

    def sorted_scatter(c: Any, x: Any, new: Any) -> Any:
        places = c.ops.broadcast(c.ops.constant([[3], [2]], "i32"), (2, 6))
        return c.ops.sort(c.ops.transpose(c.ops.scatter(x, places, new, 0), (1, 0)), 1)[0]

    yield Case("sort", "sort_transposed_scatter_f32", f32, sorted_scatter, (small(f32, 8, 6), small(f32, 2, 6)))
    yield Case("put", "put_part_f32", f32, _put_into_part, (small(f32, 1, 9, 4), small(f32, 1, 2, 4)))
    at = np.array(3, np.int32)
    yield Case("dynamic_update_slice", "update_sorted_f32", f32, _sorted_and_written, (small(f32, 5, 4), at))


FUSION_CASES: Final = (*_products(), *_parts(), *_reductions(), *_ordered())
