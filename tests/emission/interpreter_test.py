"""StableHLO's reference interpreter and the eager context give the same for every op and dtype."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_dag import TAG
from compile_hlo.emit import CHAINS, RULES
from lang_core import DTYPES, LAYOUTS, OPS, DType, Encoding, bool_, f32
from tests.emission import _cases
from tests.emission._all_cases import ALL_CASES
from tests.emission._cases import Case
from tests.emission._packed_cases import packed_blocks
from tests.emission._support import assert_agrees, eager_results, graph_of, interpret, parsed, text_of

_DRAWN = settings(deadline=None, derandomize=True, database=None, max_examples=40)
_SHAPES = st.lists(st.sampled_from((0, 1, 2, 3, 5)), max_size=4).map(tuple)
_LEAVES = {"constant", "parameter"}


def test_every_rule_and_every_case_is_of_an_op():
    """Checks that nothing is left of ops that are gone; tests/adding checks that no op lacks a rule or a case."""
    groups = {chain.op.name for chains in CHAINS.values() for chain in chains}
    assert set(RULES) <= {*OPS, TAG.name} - _LEAVES | groups
    assert {case.op for case in ALL_CASES} <= set(OPS)


def test_the_names_of_the_cases_are_unique():
    assert len({case.name for case in ALL_CASES}) == len(ALL_CASES)


def test_the_cases_in_one_module_verify():
    parsed(text_of(map(graph_of, ALL_CASES)))


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
@pytest.mark.parametrize("op", sorted(OPS))
def test_interpreter_agrees_with_eager(op: str, dtype: DType):
    for case in ALL_CASES:
        if case.op == op and case.dtype is dtype:
            assert_agrees(interpret(graph_of(case), case.inputs), eager_results(case), case)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_enough_to_unpack_blocks(name: str):
    layout = LAYOUTS[name]
    encoding = Encoding(name, layout.size, layout.bytes, layout.planes[0].bits, layout)
    scales = np.array([[0.5, -0.0625], [3.0, 2.0**-20], [0.0, -65504.0]], np.float16)
    packed = packed_blocks(encoding, scales)
    if layout.exponent:
        packed = packed_blocks(encoding, np.zeros((256, 1), np.float16))
        packed[:, layout.scale] = np.arange(256).astype(np.uint8).view(np.int8)
    fn = lambda c, w: c.ops.dequantize(w, encoding)  # noqa: E731
    case = Case("dequantize", f"dequantize_{encoding.name}", f32, fn, (packed,))
    assert_agrees(interpret(graph_of(case), case.inputs), eager_results(case), case)


def _check(op: str, fn: Any, *inputs: np.ndarray) -> None:
    dtype = next(iter(t for t in DTYPES if t.numpy == inputs[0].dtype))
    case = Case(op, "drawn", dtype, fn, inputs)
    case = dataclasses.replace(case, ulps=_cases.ulps_of(case))
    assert_agrees(interpret(graph_of(case), case.inputs), eager_results(case), case)


@_DRAWN
@given(shape=_SHAPES, other=_SHAPES, dtype=st.sampled_from(DTYPES), data=st.data())
def test_elementwise_of_drawn_shapes(shape: tuple[int, ...], other: tuple[int, ...], dtype: DType, data: st.DataObject):
    drop = data.draw(st.integers(0, len(shape)))
    other = tuple(data.draw(st.sampled_from((1, dim))) for dim in shape[drop:])
    x, y = _cases.small(dtype, *shape), _cases.small(dtype, *other)
    _check("equal", lambda c, x, y: c.ops.equal(x, y), x, y)
    _check("select", lambda c, x, y: c.ops.select(c.ops.equal(y, x), y, x), x, y)
    if dtype is not bool_:
        _check("sub", lambda c, x, y: c.ops.sub(y, x), x, y)


@_DRAWN
@given(shape=_SHAPES, dtype=st.sampled_from(DTYPES), data=st.data())
def test_reductions_of_drawn_shapes(shape: tuple[int, ...], dtype: DType, data: st.DataObject):
    x, keep = _cases.small(dtype, *shape), data.draw(st.booleans())
    axes = tuple(i for i in range(x.ndim) if data.draw(st.booleans()))
    if dtype is bool_:
        _check("all", lambda c, x: c.ops.all(x, axes, keep), x)
        return
    _check("sum", lambda c, x: c.ops.sum(x, axes, keep), x)
    if all(shape[axis] for axis in axes):
        _check("max", lambda c, x: c.ops.max(x, axes, keep), x)


@_DRAWN
@given(shape=_SHAPES.filter(len), dtype=st.sampled_from([t for t in DTYPES if t is not bool_]), data=st.data())
def test_order_along_drawn_axes(shape: tuple[int, ...], dtype: DType, data: st.DataObject):
    x, axis = _cases.small(dtype, *shape), data.draw(st.integers(0, len(shape) - 1))
    descending = data.draw(st.booleans())
    _check("sort", lambda c, x: c.ops.sort(x, axis, descending), x)
    _check("cumsum", lambda c, x: c.ops.cumsum(x, axis), x)
    if shape[axis]:
        _check("argmax", lambda c, x: c.ops.argmax(x, axis, descending), x)


@_DRAWN
@given(shape=_SHAPES.filter(len), dtype=st.sampled_from(DTYPES), data=st.data())
def test_gather_and_scatter_along_drawn_axes(shape: tuple[int, ...], dtype: DType, data: st.DataObject):
    axis, count = data.draw(st.integers(0, len(shape) - 1)), data.draw(st.integers(0, 4))
    x, at = _cases.small(dtype, *shape), tuple(count if i == axis else dim for i, dim in enumerate(shape))
    index = data.draw(st.sampled_from((np.int32, np.int64)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    places = rng.integers(-2, shape[axis] + 2, at).astype(index)
    if shape[axis] or not places.size:
        _check("gather", lambda c, x, i: c.ops.gather(x, i, axis), x, places)
        _check("take", lambda c, x, i: c.ops.take(x, i, axis), x, places)
    if dtype is not bool_:
        _check("scatter", lambda c, x, i, u: c.ops.scatter(x, i, u, axis, "max"), x, places, _cases.small(dtype, *at))


@_DRAWN
@given(data=st.data(), dtype=st.sampled_from([t for t in DTYPES if t.is_floating]))
def test_convolutions_of_drawn_windows(data: st.DataObject, dtype: DType):
    rank, groups = data.draw(st.integers(1, 3)), data.draw(st.sampled_from((1, 1, 2, 3)))
    draw = lambda *choices: tuple(data.draw(st.sampled_from(choices)) for _ in range(rank))  # noqa: E731
    size, taps, strides, dilation = draw(3, 4, 6), draw(1, 2, 3), draw(1, 2), draw(1, 2)
    padding = tuple(zip(draw(0, 1, 2), draw(0, 1), strict=True))
    x, kernel = _cases.small(dtype, 2, *size, 2 * groups), _cases.small(dtype, *taps, 2, 3 * groups)
    _check("conv", lambda c, x, k: c.ops.conv(x, k, strides, padding, dilation, groups), x, kernel)


@_DRAWN
@given(data=st.data(), dtype=st.sampled_from([t for t in DTYPES if t is not bool_]))
def test_products_of_drawn_axes(data: st.DataObject, dtype: DType):
    batch, left, right, inner = (data.draw(_SHAPES.map(lambda s: s[:2])) for _ in range(4))
    x_axes = data.draw(st.permutations(range(len(batch + left + inner))))
    y_axes = data.draw(st.permutations(range(len(batch + right + inner))))
    x, y = _cases.small(dtype, *batch, *left, *inner), _cases.small(dtype, *batch, *right, *inner)
    x_at, y_at = np.argsort(x_axes).tolist(), np.argsort(y_axes).tolist()
    b, n = len(batch), len(inner)
    contract = (x_at[len(x_at) - n :], y_at[len(y_at) - n :])
    fn = lambda c, x, y: c.ops.dot_general(x, y, contract, (x_at[:b], y_at[:b]))  # noqa: E731
    _check("dot_general", fn, x.transpose(x_axes).copy(), y.transpose(y_axes).copy())


def test_erf_is_close_to_the_mathematical_one():
    exact = np.vectorize(math.erf)
    for dtype, ulps in ((np.float32, 6), (np.float64, 4)):
        x = np.concatenate([np.linspace(-7, 7, 3001), np.logspace(-30, 2, 999), [np.inf, -np.inf, -0.0]]).astype(dtype)
        case = Case("erf", "erf", next(t for t in DTYPES if t.numpy == dtype), lambda c, x: c.ops.erf(x), (x,))
        result = interpret(graph_of(case), (x,))[0]
        wanted = exact(x.astype(np.float64))
        assert np.all(np.abs(result) <= 1)
        assert np.signbit(result[-1])
        assert np.max(np.abs(result - wanted) / np.spacing(np.abs(wanted.astype(dtype)) + dtype(1e-37))) <= ulps
