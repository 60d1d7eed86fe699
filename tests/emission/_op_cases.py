"""One small case per op, attribute and dtype."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from lang_core import DTYPES, OPS, DType, OpError, TensorSpec, bool_
from tests.emission._cases import Array, Case, filled, small, special, ulps_of

_RNG_SEED: Final = 20


def _takes(op: str, *dtypes: DType, attributes: tuple[Any, ...] = ()) -> bool:
    try:
        OPS[op].infer(tuple(TensorSpec((3,), dtype) for dtype in dtypes), attributes)
    except OpError:
        return False
    return True


_UNARY: Final = tuple(
    "logical_not negate abs sign exp expm1 log log1p tanh logistic erf sqrt rsqrt sin cos floor ceil round".split()
)
_BINARY: Final = tuple(
    "add sub mul div quotient rem pow maximum minimum equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor shift_left shift_right_logical".split()
)


def _second(op: str, dtype: DType, y: Array) -> Array:
    """Returns the right operand, without values for which the op is unspecified."""
    if op in ("quotient", "rem") and dtype.is_integer:
        return y[y != 0]
    if op.startswith("shift"):
        return np.arange(dtype.itemsize * 8, dtype=dtype.numpy)[::3].copy()
    return y[:-1]


def _elementwise(dtype: DType) -> Iterator[Case]:
    x = special(dtype)
    for op in _UNARY:
        if _takes(op, dtype):
            more = np.linspace(-8, 8, 33).astype(dtype.numpy) if dtype.is_floating else x
            yield Case(op, op, dtype, lambda c, x, op=op: getattr(c.ops, op)(x), (np.concatenate([x, more]),))
    for op in _BINARY:
        if _takes(op, dtype, dtype):
            left, right = x, _second(op, dtype, x)
            if op == "pow":  # devices differ at the special values
                yield Case(op, "pow_special", dtype, lambda c, x, y: c.ops.pow(x, y), (x[:, None].copy(), right))
                left, right = np.array([0.1, 1, 1.5, 20, 1000], x.dtype), np.array([0, 1, -1, 0.5, 2.25], x.dtype)
            fn = lambda c, x, y, op=op: getattr(c.ops, op)(x, y)  # noqa: E731
            yield Case(op, op, dtype, fn, (left[:, None].copy(), right))
    for op in ("equal", "not_equal"):
        yield Case(op, f"{op}_itself", dtype, lambda c, x, op=op: getattr(c.ops, op)(x, x), (x,))
    pred = np.array([[True], [False]])
    yield Case("select", "select", dtype, lambda c, p, x, y: c.ops.select(p, x, y), (pred, x, x[::-1].copy()))
    one = np.array(True)
    yield Case("select", "select_scalar", dtype, lambda c, p, x, y: c.ops.select(p, x, y), (one, x, x[::-1].copy()))
    zero = np.zeros((), dtype.numpy)
    yield Case("select", "select_constant", dtype, lambda c, p, x: c.ops.select(p, x, c.ops.constant(zero)), (pred, x))
    if dtype is not bool_:
        low, high = x[2:3].reshape(()), small(dtype, 1)
        yield Case("clamp", "clamp", dtype, lambda c, x, a, b: c.ops.clamp(x, a, b), (x, low, high))
    for target in DTYPES:
        if target is not dtype:
            yield Case(
                "cast", f"cast_{target}", dtype, lambda c, x, t=target: c.ops.cast(x, t), (_castable(dtype, target),)
            )


def _castable(source: DType, target: DType) -> Array:
    """Returns values whose conversion is defined."""
    x = special(source)
    if not source.is_floating or target is bool_ or target.is_floating:
        return x
    finite = x[np.isfinite(x.astype(np.float64))]
    return finite[finite.astype(np.float64) >= 0] if target.name == "u8" else finite


def _moves(dtype: DType) -> Iterator[Case]:
    x, y = small(dtype, 2, 3, 5), small(dtype, 2, 4, 5)
    filler = small(dtype, 4)[1].reshape(())
    yield Case("broadcast", "broadcast", dtype, lambda c, x: c.ops.broadcast(x, (4, 2, 3, 5)), (x[:, :1].copy(),))
    yield Case("reshape", "reshape", dtype, lambda c, x: c.ops.reshape(x, (5, 6)), (x,))
    yield Case("transpose", "transpose", dtype, lambda c, x: c.ops.transpose(x, (2, 0, 1)), (x,))
    yield Case("concat", "concat", dtype, lambda c, x, y: c.ops.concat((x, y, x), 1), (x, y))
    part = lambda c, x: c.ops.slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 3))  # noqa: E731
    yield Case("slice", "slice", dtype, part, (filled(dtype, 2, 3, 5),))
    yield Case("pad", "pad", dtype, lambda c, x, v: c.ops.pad(x, (0, 1, 2), (1, 0, 0), v, (0, 2, 1)), (x, filler))
    yield Case("reverse", "reverse", dtype, lambda c, x: c.ops.reverse(x, (0, 2)), (x,))
    yield Case("constant", "constant", dtype, lambda c, x: (c.ops.constant(small(dtype, 3, 2)), x), (filler,))
    yield Case("while", "while", dtype, _loop, (x,))
    for pred in (True, False):
        yield Case("cond", f"cond_{pred}".lower(), dtype, _branch, (np.array(pred), x[0], x[1]))
    if dtype is not bool_:
        yield Case("iota", "iota", dtype, lambda c, x: (c.ops.iota((3, 4), 1, dtype), x), (filler,))


def _loop(c: Any, x: Any) -> Any:
    """Turns x round three times: a loop that carries every dtype, and captures x."""
    ops = c.ops
    n = ops.constant(3, "i32")

    def body(i: Any, y: Any) -> Any:
        return ops.add(i, 1), ops.select(ops.equal(i, 1), x, ops.reverse(y, (1,)))

    return ops.while_loop(lambda i, y: ops.less(i, n), body, (ops.constant(0, "i32"), x))


def _branch(c: Any, pred: Any, x: Any, y: Any) -> Any:
    return c.ops.cond(pred, lambda a: (a, y), lambda a: (c.ops.reverse(y, (0,)), a), (x,))


def _reductions(dtype: DType) -> Iterator[Case]:
    x = small(dtype, 3, 4, 5)
    for op in ("sum", "prod", "max", "min", "any", "all"):
        if not _takes(op, dtype, attributes=((0,), False)):
            continue
        for axis, keep in (((1,), False), ((0, 2), True), (None, False)):
            label = f"{op}_{'all' if axis is None else ''.join(map(str, axis))}"
            fn = lambda c, x, op=op, axis=axis, keep=keep: getattr(c.ops, op)(x, axis, keep)  # noqa: E731
            yield Case(op, label, dtype, fn, (x,))
    if dtype.name == "f32":  # beside what was reduced, over other axes than the last: IREE fuses the two
        long = np.random.default_rng(_RNG_SEED).random((3, 5, 14), np.float32)
        for axis in (0, 1):
            beside = lambda c, x, axis=axis: c.ops.sub(x, c.ops.max(x, axis, True))  # noqa: E731
            yield Case("max", f"max_beside_{axis}", dtype, beside, (long,))
    long = np.random.default_rng(_RNG_SEED).integers(-90, -1, (3, 512)).astype(dtype.numpy)
    for op in ("any", "all") if dtype is bool_ else ("max", "min", "sum", "argmax", "argmin"):
        fn = lambda c, x, op=op: getattr(c.ops, op)(x, 1)  # noqa: E731
        yield Case(op, f"{op}_long", dtype, fn, (long if dtype is not bool_ else long > -60,))
    if dtype is bool_:
        return
    tied = np.stack([special(dtype), special(dtype)[::-1], np.roll(special(dtype), 3)])
    without_nan = tied[:, ~np.isnan(tied.astype(np.float64)).any(0)]
    for op in ("argmax", "argmin"):
        for label, keys, axis in (("", without_nan, 1), ("_nan", tied, 1), ("_down", tied, 0)):
            fn = lambda c, x, op=op, axis=axis: getattr(c.ops, op)(x, axis, axis == 0)  # noqa: E731
            yield Case(op, op + label, dtype, fn, (keys,))
    for op, best in (("argmax", 120), ("argmin", 90)):
        far = np.where(np.arange(20) == 17, best, 110).astype(dtype.numpy)
        yield Case(op, f"{op}_far", dtype, lambda c, x, op=op: getattr(c.ops, op)(x, 0), (far,))
    for op in ("max", "min", "sum", "prod"):
        yield Case(op, f"{op}_nan", dtype, lambda c, x, op=op: getattr(c.ops, op)(x, 0), (tied,))
    for descending in (False, True):
        label = "sort_descending" if descending else "sort"
        yield Case("sort", label, dtype, lambda c, x, d=descending: c.ops.sort(x, 1, d), (np.tile(tied, 2),))
    yield Case("sort", "sort_down", dtype, lambda c, x: c.ops.sort(x, 0), (x,))
    for axis in (0, 2):
        yield Case("cumsum", f"cumsum_{axis}", dtype, lambda c, x, a=axis: c.ops.cumsum(x, a), (x,))


def _products(dtype: DType) -> Iterator[Case]:
    x, y = small(dtype, 2, 3, 5), small(dtype, 4, 5, 2)
    batched = lambda c, x, y: c.ops.dot_general(x, y, ((2,), (1,)), ((0,), (2,)))  # noqa: E731
    yield Case("dot_general", "dot_general_batched", dtype, batched, (x, y))
    yield Case("dot_general", "dot_general", dtype, lambda c, x, y: c.ops.dot_general(x, y, ((2,), (1,))), (x, y))
    outer = lambda c, x, y: c.ops.dot_general(x, y, ((), ()))  # noqa: E731
    yield Case("dot_general", "dot_general_outer", dtype, outer, (x[0, 0], y[0, 0]))
    wide = {"f16": "f32", "bf16": "f32", "i8": "i32", "u8": "i32", "i32": "i64", "f32": "f64"}.get(dtype.name)
    if wide:
        big = special(dtype)[np.isfinite(special(dtype).astype(np.float64))]
        widening = lambda c, x, y: c.ops.dot_general(x, y, ((0,), (0,)), dtype=wide)  # noqa: E731
        yield Case("dot_general", "dot_general_wide", dtype, widening, (big, big))
    if dtype.name in ("i8", "u8"):
        moved = lambda c, x: c.ops.sub(c.ops.cast(x, "i32"), 3)  # noqa: E731
        both = lambda c, x, y: c.ops.dot_general(moved(c, x), moved(c, y), ((1,), (0,)))  # noqa: E731
        yield Case("dot_general", "dot_general_casts", dtype, both, (small(dtype, 4, 3), small(dtype, 3, 2)))
    if not dtype.is_floating:
        return
    one = lambda c, x, k: c.ops.conv(x, k, (2,), ((2, 0),), (2,))  # noqa: E731
    yield Case("conv", "conv_1d", dtype, one, (small(dtype, 2, 9, 3), small(dtype, 3, 3, 4)))
    causal = lambda c, x, k: c.ops.conv(x, k, None, ((3, 0),), None, 6)  # noqa: E731
    yield Case("conv", "conv_depthwise", dtype, causal, (small(dtype, 2, 7, 6), small(dtype, 4, 1, 6)))
    turned = lambda c, x, k: c.ops.conv(c.ops.transpose(x, (0, 2, 1)), k)  # noqa: E731
    yield Case("conv", "conv_turned", dtype, turned, (small(dtype, 2, 4, 11), small(dtype, 4, 4, 6)))
    two = lambda c, x, k: c.ops.conv(x, k, (1, 2), ((1, 0), (0, 1)), (1, 2), 2)  # noqa: E731
    yield Case("conv", "conv_2d_groups", dtype, two, (small(dtype, 1, 5, 7, 4), small(dtype, 2, 3, 2, 6)))
    strided = lambda c, x, k: c.ops.conv(x, k, (3, 3), ((1, 1), (1, 0)), (2, 1))  # noqa: E731
    yield Case("conv", "conv_one_window", dtype, strided, (small(dtype, 2, 8, 4, 3), small(dtype, 3, 3, 3, 2)))
    without = lambda c, x, k: c.ops.conv(x, k, None, ((1, 1),))  # noqa: E731
    yield Case("conv", "conv_no_channels", dtype, without, (small(dtype, 2, 5, 0), small(dtype, 3, 0, 4)))
    plain = lambda c, x, k: c.ops.conv(x, k)  # noqa: E731
    yield Case("conv", "conv_nan", dtype, plain, (filled(dtype, 1, 14, 1), small(dtype, 1, 1, 1)))
    yield Case("conv", "conv_3d", dtype, plain, (small(dtype, 1, 3, 4, 5, 2), small(dtype, 2, 1, 2, 2, 3)))


def _indexing(dtype: DType) -> Iterator[Case]:
    x = small(dtype, 5, 3)
    for index in (np.int32, np.int64):
        tag = np.dtype(index).name
        at = (np.array(4, index), np.array(-7, index))
        part = lambda c, x, i, j: c.ops.dynamic_slice(x, (i, j), (2, 2))  # noqa: E731
        yield Case("dynamic_slice", f"dynamic_slice_{tag}", dtype, part, (filled(dtype, 5, 3), *at))
        write = lambda c, x, u, i, j: c.ops.dynamic_update_slice(c.ops.reverse(x, (0,)), u, (i, j))  # noqa: E731
        yield Case("dynamic_update_slice", f"update_{tag}", dtype, write, (x, small(dtype, 2, 1), *at))
        rows = np.array([[4, 0], [-3, 9], [2, 2]], index)
        yield Case("take", f"take_{tag}", dtype, lambda c, x, i: c.ops.take(x, i, 0), (x, rows))
        yield Case("take", f"take_1_{tag}", dtype, lambda c, x, i: c.ops.take(x, i, 1), (x, rows))
        places = [np.array(i, index) for i in (100, -7, 1)]
        one = lambda c, x, *at: [c.ops.take(x, i, 0) for i in at]  # noqa: E731
        yield Case("take", f"take_rank0_{tag}", dtype, one, (x, *places))
        lines = np.array([[0, 4, 2], [-1, 7, 2], [100, 1, -50], [4, 4, 2]], index)
        yield Case("gather", f"gather_{tag}", dtype, lambda c, x, i: c.ops.gather(x, i, 0), (x, lines))
        across = np.array([[0, 2], [-1, 7], [100, 1], [2, 2], [1, 0]], index)
        yield Case("gather", f"gather_1_{tag}", dtype, lambda c, x, i: c.ops.gather(x, i, 1), (x, across))
        own = np.array([[4, -3], [0, 9], [2, 1]], index)
        put = lambda c, x, i, u: c.ops.put(c.ops.reverse(x, (0,)), i, u, 2)  # noqa: E731
        yield Case("put", f"put_{tag}", dtype, put, (small(dtype, 3, 2, 5, 3), own, small(dtype, 3, 2, 2, 3)))
        some = lambda c, x, i, u, w: c.ops.put(c.ops.reverse(x, (0,)), i, u, 2, w)  # noqa: E731
        kept = np.array([[True, False], [False, False], [True, True]])
        yield Case("put", f"put_where_{tag}", dtype, some, (small(dtype, 3, 2, 5), own, small(dtype, 3, 2, 2), kept))
        last = lambda c, x, i, u: c.ops.put(c.ops.reverse(x, (0,)), i, u, 1)  # noqa: E731
        yield Case("put", f"put_last_{tag}", dtype, last, (small(dtype, 3, 5), own, small(dtype, 3, 2)))
        for reduction in ("set", "add", "mul", "max", "min"):
            if reduction != "set" and dtype is bool_:
                continue
            places = np.array([[0, 4, 2], [-1, 7, 3], [100, 1, -50], [3, 4, 2]], index)
            if reduction == "set":  # which of several updates of one element wins is unspecified
                places[3] = (2, 3, 1)
            fn = lambda c, x, i, u, r=reduction: c.ops.scatter(c.ops.reverse(x, (0,)), i, u, 0, r)  # noqa: E731
            yield Case("scatter", f"scatter_{reduction}_{tag}", dtype, fn, (x, places, small(dtype, 4, 3)))


def _edges(dtype: DType) -> Iterator[Case]:
    """Yields cases of rank 0 and of no elements."""
    scalar, none = small(dtype, 1).reshape(()), small(dtype, 0, 3)
    yield Case("select", "select_rank0", dtype, lambda c, p, x: c.ops.select(p, x, x), (np.array(False), scalar))
    yield Case("concat", "concat_empty", dtype, lambda c, x, y: c.ops.concat((x, y), 0), (none, small(dtype, 2, 3)))
    yield Case("slice", "slice_rank0", dtype, lambda c, x: c.ops.slice(x, (), ()), (scalar,))
    yield Case("dynamic_slice", "dynamic_slice_rank0", dtype, lambda c, x: c.ops.dynamic_slice(x, (), ()), (scalar,))
    yield Case("reverse", "reverse_nothing", dtype, lambda c, x: c.ops.reverse(x, ()), (none,))
    yield Case("transpose", "transpose_rank0", dtype, lambda c, x: c.ops.transpose(x, ()), (scalar,))
    if dtype is bool_:
        yield Case("any", "any_empty", dtype, lambda c, x: c.ops.any(x, 0), (none,))
        return
    yield Case("add", "add_empty", dtype, lambda c, x: c.ops.add(x, x), (none,))
    yield Case("sum", "sum_empty", dtype, lambda c, x: c.ops.sum(x, 0), (none,))
    yield Case("cumsum", "cumsum_empty", dtype, lambda c, x: c.ops.cumsum(x, 0), (none,))
    yield Case("sort", "sort_empty", dtype, lambda c, x: c.ops.sort(x, 0), (none,))
    yield Case("sort", "sort_one", dtype, lambda c, x: c.ops.sort(x, 1), (small(dtype, 3, 1),))
    dot = lambda c, x, y: c.ops.dot_general(x, y, ((0,), (0,)))  # noqa: E731
    yield Case("dot_general", "dot_general_empty", dtype, dot, (none, none[:, :2].copy()))


def _at_values(dtype: DType) -> Iterator[Case]:
    """Yields cases in which compilers know an operand, and angles of many turns."""
    if dtype.name != "f32":
        return
    x = special(dtype)
    yield Case("add", "add_zero", dtype, lambda c, x: (c.ops.add(x, 0.0), c.ops.sub(x, -0.0)), (x,))
    yield Case("sum", "sum_of_one", dtype, lambda c, x: c.ops.sum(x, 1), (x[:, None].copy(),))
    yield Case("mul", "mul_by_zero", dtype, lambda c, x: (c.ops.mul(x, 0.0), c.ops.mul(-0.0, x)), (x,))
    yield Case("div", "div_of_zero", dtype, lambda c, x: c.ops.div(0.0, x), (x,))
    yield Case("rem", "rem_by_one", dtype, lambda c, x: c.ops.rem(x, 1.0), (x,))
    far = np.array([100.0, 1e4, -40000.0, 131071.0, 1e6, 0.1, -0.0], np.float32)
    yield Case("sin", "sin_far", dtype, lambda c, x: (c.ops.sin(x), c.ops.cos(x)), (far,))


_FAMILIES: Final = (_elementwise, _at_values, _moves, _reductions, _products, _indexing, _edges)


def _cases(dtype: DType) -> Iterator[Case]:
    for family in _FAMILIES:
        if family is _products and dtype is bool_:
            continue
        for case in family(dtype):
            name = f"{case.name}_{dtype.name}"
            yield dataclasses.replace(case, name=name, ulps=case.ulps or ulps_of(case))


CASES: Final = tuple(case for dtype in DTYPES for case in _cases(dtype))
