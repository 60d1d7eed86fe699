"""Updates in place of what their operands are computed from; see ``compile_hlo/quirks/_updates.py``."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lang_core import f32, i32
from tests.emission._cases import Array, Case, small

_X: Final = np.arange(48, dtype=np.float32).reshape(8, 6)
_AT: Final = np.array(3, np.int32)


def _case(op: str, name: str, fn: Callable[..., Any], *inputs: Array) -> Case:
    return Case(op, f"{name}_f32", f32, fn, inputs)


def _shifted(c: Any, x: Any, *start: Any) -> Any:
    return c.ops.dynamic_update_slice(x, c.ops.slice_axis(x, 0, 0, 5), [*start, 0])


def _shifted_and_shaped(c: Any, x: Any) -> Any:
    """XLA moves the reshape to the target."""
    base = c.ops.add(x, 1.0)
    update = c.ops.mul(c.ops.slice_axis(base, 0, 0, 5), 2.0)
    return c.ops.reshape(c.ops.dynamic_update_slice(base, update, [1, 0]), (1, 8, 6))


def _shaped_and_shifted(c: Any, x: Any) -> Any:
    """The target is a reshape already."""
    row = c.ops.reshape(x, (1, 48))
    update = c.ops.reshape(c.ops.slice_axis(c.ops.reshape(row, (48,)), 0, 0, 30), (1, 30))
    return c.ops.dynamic_update_slice(row, update, [0, 5])


def _swapped(c: Any, x: Any) -> Any:
    return c.ops.put(x, c.ops.constant([[1, 0], [1, 0]], "i32"), c.ops.slice_axis(x, 1, 0, 2), 1)


def _put_all(c: Any, x: Any) -> Any:
    """The target and the update are the same tensor."""
    turned = c.ops.transpose(x, (1, 0))
    places = np.tile(np.arange(8, dtype=np.int32)[::-1], (6, 1))
    return c.ops.put(turned, c.ops.constant(places), turned, 1)


def _in_a_loop(c: Any, x: Any) -> Any:
    return c.ops.fori_loop(2, lambda i, v: (_shifted(c, v, c.ops.add(i, 1)),), (x,))[0]


def _constant(c: Any, x: Any, start: Any) -> Any:
    """The target is a copy of a constant; the update reads what it overwrites."""
    target = c.ops.dynamic_update_slice(c.ops.constant(_X), c.ops.negate(x), [1, 0])
    return _shifted(c, target, start)


def _by_what_it_holds(c: Any, x: Any) -> Any:
    """The positions are computed from the target."""
    places = c.ops.rem(c.ops.slice_axis(x, 1, 0, 3), 3)
    return c.ops.put(x, places, c.ops.slice_axis(x, 1, 2, 5), 1)


UPDATE_CASES: Final = (
    _case("dynamic_update_slice", "update_shifted", _shifted, _X, _AT),
    _case("dynamic_update_slice", "update_shifted_known", lambda c, x: _shifted(c, x, 1), _X),
    _case("dynamic_update_slice", "update_shifted_before_reshape", _shifted_and_shaped, _X),
    _case("dynamic_update_slice", "update_shifted_after_reshape", _shaped_and_shifted, _X),
    _case("dynamic_update_slice", "update_shifted_in_a_loop", _in_a_loop, _X),
    _case("dynamic_update_slice", "update_shifted_constant", _constant, small(f32, 2, 6), _AT),
    _case("put", "put_swapped", _swapped, small(f32, 2, 4, 6)),
    _case("put", "put_all", _put_all, _X),
    Case("put", "put_by_what_it_holds", i32, _by_what_it_holds, (np.array([[0, 1, 2, 4, 5, 6]], np.int32),)),
)
