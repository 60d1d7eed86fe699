"""Results of eager ops do not change when the caller writes to the arrays that went in."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lang_core import OPS, EagerExecutionContext, TensorSpec

Array = np.ndarray[Any, Any]


def _x() -> Array:
    return np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _at(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def _i() -> Array:
    return np.arange(6, dtype=np.int32)


def _b() -> Array:
    return np.array([[True], [False], [True]])


Call = Callable[..., Any]
# Calls of ops that may give their operands back, or parts of them: (name, function, arrays).
_VIEWS: dict[str, tuple[Call, list[Array]]] = {
    "reshape": (lambda o, x: o.reshape(x, (6, 4)), [_x()]),
    "reshape_same": (lambda o, x: o.reshape(x, x.shape), [_x()]),
    "reshape_inferred": (lambda o, x: o.reshape(x, (-1,)), [_x()]),
    "slice": (lambda o, x: o.slice(x, (0, 1, 0), (2, 3, 4)), [_x()]),
    "slice_whole": (lambda o, x: o.slice(x, (0, 0, 0), (2, 3, 4)), [_x()]),
    "slice_step": (lambda o, x: o.slice(x, (0, 0, 0), (2, 3, 4), (1, 2, 3)), [_x()]),
    "slice_axis": (lambda o, x: o.slice_axis(x, 1, 0, 2), [_x()]),
    "transpose": (lambda o, x: o.transpose(x, (2, 0, 1)), [_x()]),
    "transpose_same": (lambda o, x: o.transpose(x, (0, 1, 2)), [_x()]),
    "broadcast": (lambda o, x: o.broadcast(x, (5, 2, 3, 4)), [_x()]),
    "broadcast_same": (lambda o, x: o.broadcast(x, (2, 3, 4)), [_x()]),
    "reverse": (lambda o, x: o.reverse(x, (0, 2)), [_x()]),
    "reverse_nothing": (lambda o, x: o.reverse(x, ()), [_x()]),
    "split": (lambda o, x: o.split(x, (1, 2), 1), [_x()]),
    "cast_same": (lambda o, x: o.cast(x, "f32"), [_x()]),
    "cast_int": (lambda o, x: o.cast(x, "i32"), [_i()]),
    "concat_one": (lambda o, x: o.concat((x,), 0), [_x()]),
    "pad_nothing": (lambda o, x: o.pad(x, (0, 0, 0), (0, 0, 0)), [_x()]),
    "dynamic_slice": (lambda o, x, i: o.dynamic_slice(x, (i, i, i), (1, 2, 2)), [_x(), _at(0).reshape(())]),
    "dynamic_slice_whole": (lambda o, x, i: o.dynamic_slice(x, (i, i, i), (2, 3, 4)), [_x(), _at(0).reshape(())]),
    "dynamic_update_slice": (
        lambda o, x, u, i: o.dynamic_update_slice(x, u, (i, i, i)),
        [_x(), _x(), _at(0).reshape(())],
    ),
    "take": (lambda o, x, i: o.take(x, i, 0), [_x(), _at(0, 1)]),
    "take_one": (lambda o, x, i: o.take(x, i, 0), [_x(), _at(1).reshape(())]),
    "gather": (lambda o, x, i: o.gather(x, i, 0), [_x()[:, 0], np.zeros((2, 4), np.int32)]),
    "put_nothing": (
        lambda o, x, i, u, w: o.put(x, i, u, 1, w),
        [_x(), np.zeros((2, 1), np.int32), _x()[:, :1].copy(), np.zeros((2, 1), bool)],
    ),
    "sort": (lambda o, x: o.sort(x), [_x()]),
    "select": (lambda o, p, x, y: o.select(p, x, y), [_b(), _x()[0], _x()[1]]),
    "sum_of_no_axes": (lambda o, x: o.sum(x, ()), [_x()]),
    "max_of_no_axes": (lambda o, x: o.max(x, ()), [_x()]),
    "prod_of_no_axes": (lambda o, x: o.prod(x, ()), [_x()]),
    "sum_of_one": (lambda o, x: o.sum(x, 0), [_x()[:1].copy()]),
    "cumsum_of_one": (lambda o, x: o.cumsum(x, 0), [_x()[:1].copy()]),
    "abs": (lambda o, x: o.abs(x), [_x()]),
    "round": (lambda o, x: o.round(x), [_x()]),
    "relu": (lambda o, x: o.relu(x), [_x()]),
    "clamp": (lambda o, x: o.clamp(x, -100.0, 100.0), [_x()]),
    "add_nothing": (lambda o, x: o.add(x, 0.0), [_x()]),
    "erf_of_nothing": (lambda o, x: o.erf(x), [np.zeros((0, 3), np.float32)]),
    "cond": (lambda o, p, x: o.cond(p, lambda a: (a,), lambda a: (o.negate(a),), (x,)), [np.array(True), _x()]),
    "cond_captured": (lambda o, p, x: o.cond(p, lambda: (x,), lambda: (x,), ()), [np.array(False), _x()]),
    "no_rounds": (lambda o, x: o.while_loop(lambda a: o.constant(False), lambda a: (o.negate(a),), (x,)), [_x()]),
    "rounds": (
        lambda o, i, x: o.while_loop(lambda n, a: o.less(n, 2), lambda n, a: (o.add(n, 1), a), (i, x))[1],
        [_at(0).reshape(()), _x()],
    ),
    "two_views": (lambda o, x: o.transpose(o.reshape(o.slice_axis(x, 0, 0, 1), (3, 4))), [_x()]),
    "linear": (lambda o, x, w: o.linear(x, w), [_x(), np.ones((5, 4), np.float32)]),
}


def _results(call: Call, ops: Any, arrays: list[Array]) -> list[Array]:
    made = call(ops, *arrays)
    return [tensor.numpy() for tensor in (made if isinstance(made, tuple | list) else [made]) if tensor is not None]


@pytest.mark.parametrize("name", _VIEWS)
def test_results_stay_when_the_caller_writes_to_the_operands(name: str) -> None:
    call, given = _VIEWS[name]
    ops = EagerExecutionContext().ops
    for arrays in ([array.copy() for array in given], [_inside(array) for array in given]):
        results = [result for result in _results(call, ops, arrays) if not any(result is array for array in arrays)]
        before = [result.copy() for result in results]
        for array in arrays:
            array[...] = ~array if array.dtype == bool else array + 100
        for result, kept in zip(results, before, strict=True):
            np.testing.assert_array_equal(result, kept)
            assert not any(np.shares_memory(result, array) for array in arrays)


def _inside(array: Array) -> Array:
    """Returns the array as a part of a larger one."""
    whole = np.zeros(tuple(dim + 2 for dim in array.shape), array.dtype)
    part = whole[tuple(slice(1, dim + 1) for dim in array.shape)] if array.ndim else whole.reshape(())
    part[...] = array
    return part


def test_a_read_only_view_of_what_can_be_written_is_the_callers_too() -> None:
    x = _x()
    view = x.view()
    view.flags.writeable = False
    result = EagerExecutionContext().ops.transpose(view).numpy()  # pyright: ignore[reportArgumentType]
    x[...] = 0
    assert result.sum() == 276


def test_results_of_placeholders_stay() -> None:
    x = _x()
    ctx = EagerExecutionContext(inputs={"x": x})
    result = ctx.ops.reshape(ctx.ops.placeholder("x", (2, 3, 4), "f32"), (24,))
    x[...] = -1
    assert result.numpy().tolist() == list(range(24))


def test_operands_that_are_arrays_are_not_written_by_any_op() -> None:
    for call, given in _VIEWS.values():
        arrays = [array.copy() for array in given]
        _results(call, EagerExecutionContext().ops, arrays)
        for array, kept in zip(arrays, given, strict=True):
            np.testing.assert_array_equal(array, kept)


def test_every_op_that_may_give_a_view_is_among_the_calls() -> None:
    """Finds them by trying: NumPy's rule of one operand, whose result shares its memory."""
    x = np.ones((2, 3), np.float32)
    attributes: dict[str, tuple[Any, ...]] = {
        "reshape": ((3, 2),),
        "transpose": ((1, 0),),
        "broadcast": ((2, 2, 3),),
        "slice": ((0, 0), (1, 2), (1, 1)),
        "reverse": ((0,),),
        "cast": (TensorSpec((), "f32").dtype,),
    }
    views = {
        name
        for name, op in OPS.items()
        if name in attributes and np.shares_memory(np.asarray(op.eager_rule(x, *attributes[name])), x)
    }
    assert views == set(attributes)
    assert views <= {name.split("_")[0] for name in _VIEWS}


@pytest.mark.parametrize("bytes_", [(0, 1, 2, 255), (254, 128, 3, 0)])
def test_bools_of_other_bytes_than_0_and_1_are_true(bytes_: tuple[int, ...]) -> None:
    stored = np.array(bytes_, np.uint8).view(bool)
    wanted = [bool(byte) for byte in bytes_]
    ops: Any = EagerExecutionContext(inputs={"m": stored}).ops
    for mask in (stored, ops.constant(stored), ops.placeholder("m", (4,), "bool")):
        assert ops.cast(mask, "i32").numpy().tolist() == [int(x) for x in wanted]
        assert ops.reshape(mask, (2, 2)).numpy().view(np.uint8).max() == 1
        assert ops.equal(mask, np.ones(4, bool)).numpy().tolist() == wanted
