"""Loops and branches: what their regions capture, how they nest, and what blocks share."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compile_dag import Node, record
from compile_hlo.emit import ArgumentParameters, Emitter
from lang_core import OPS, EagerExecutionContext, GraphError, MappingWeights, Module, Op, Parameter, TensorSpec
from tests.emission._support import interpret, text_of

_X = np.array([[1.0, -2.0, 0.5], [4.0, 0.25, -1.0]], np.float32)
_W = np.array([[0.5, 2.0, -1.0], [1.0, 0.0, 3.0]], np.float32)


class _Weight(Module):
    def __init__(self) -> None:
        self.w = Parameter((2, 3), "f32")


_MODEL = _Weight()


def _captured_leaves(c: Any, x: Any) -> Any:
    """A constant and a parameter that only the regions use, and one that both sides use."""
    ops, w = c.ops, c.parameter(_MODEL.w)
    two, limit = ops.constant(2.0), ops.constant(4, "i32")
    total = ops.add(x, w)

    def body(i: Any, y: Any) -> Any:
        return ops.add(i, 1), ops.add(ops.mul(y, two), w)

    return ops.add(ops.while_loop(lambda i, y: ops.less(i, limit), body, (ops.constant(0, "i32"), total))[1], w)


def _made_inside(c: Any, x: Any) -> Any:
    """A parameter that is read for the first time inside, and again outside."""
    ops = c.ops

    def body(i: Any, y: Any) -> Any:
        return ops.add(i, 1), ops.mul(y, c.parameter(_MODEL.w))

    y = ops.while_loop(lambda i, y: ops.less(i, 2), body, (ops.constant(0, "i32"), x))[1]
    return ops.sub(y, c.parameter(_MODEL.w))


def _nested(c: Any, x: Any) -> Any:
    """A loop in a loop; the inner one uses the outer one's values and an argument of the function."""
    ops = c.ops

    def outer(i: Any, y: Any) -> Any:
        def inner(j: Any, z: Any) -> Any:
            return ops.add(j, 1), ops.add(ops.mul(z, 0.5), ops.add(x, y))

        return ops.add(i, 1), ops.while_loop(lambda j, z: ops.less(j, i), inner, (ops.constant(0, "i32"), y))[1]

    return ops.while_loop(lambda i, y: ops.less(i, 4), outer, (ops.constant(1, "i32"), x))[1]


def _branches(c: Any, x: Any) -> Any:
    """A branch in a branch in a loop, each taking from around it."""
    ops = c.ops
    w = c.parameter(_MODEL.w)

    def body(i: Any, y: Any) -> Any:
        def even() -> Any:
            return ops.cond(ops.equal(i, 0), lambda: (ops.add(y, x),), lambda: (ops.mul(y, w),))

        return ops.add(i, 1), ops.cond(ops.equal(ops.rem(i, 2), 0), even, lambda: (ops.negate(y),))[0]

    return ops.while_loop(lambda i, y: ops.less(i, 5), body, (ops.constant(0, "i32"), x))[1]


def _passes_through(c: Any, x: Any) -> Any:
    """Regions that give what they captured, an argument twice, and a constant."""
    ops = c.ops
    one = ops.constant(np.ones((2, 3), np.float32))
    a, b, d = ops.cond(ops.less(ops.sum(x), 100.0), lambda: (x, x, one), lambda: (one, x, x))
    return ops.add(ops.mul(a, 2.0), ops.add(b, d))


def _blocks(c: Any, x: Any) -> Any:
    """A constant, a parameter and a broadcast that two blocks use."""
    ops, w = c.ops, c.parameter(_MODEL.w)
    row = ops.constant(np.array([1.0, 2.0, 3.0], np.float32))
    for name in ("layers.0", "layers.1"):
        with c.block(name):
            x = ops.add(ops.mul(x, w), row)
            x = ops.fori_loop(2, lambda i, y: (ops.add(y, row),), (x,))[0]
    return x


_ALL = [_captured_leaves, _made_inside, _nested, _branches, _passes_through, _blocks]


@pytest.mark.parametrize("fn", _ALL, ids=lambda fn: fn.__name__)
def test_regions_mean_what_the_eager_context_does(fn: Callable[..., Any]):
    graph = record(fn, TensorSpec(_X.shape, "f32"), input_names=["x"], name="f")
    ctx = EagerExecutionContext(MappingWeights({"w": _W}))
    wanted = fn(ctx, ctx.constant(_X)).numpy()
    result = interpret(graph, [_X], [_W] * len(graph.parameters()))[0]
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


@pytest.mark.parametrize("fn", _ALL, ids=lambda fn: fn.__name__)
def test_emitting_twice_gives_the_same_bytes(fn: Callable[..., Any]):
    first, second = (record(fn, TensorSpec(_X.shape, "f32"), input_names=["x"], name="f") for _ in range(2))
    assert text_of([first]) == text_of([first]) == text_of([second])


def test_the_text_of_two_equal_blocks_is_the_same_but_for_the_numbers():
    """Leaves stand in the block that uses them, so a block does not depend on what is before it."""
    graph = record(_blocks, TensorSpec(_X.shape, "f32"), input_names=["x"], name="f")
    text = text_of([graph])
    assert text.count('stablehlo.constant dense<"0x') == 2
    assert text.count("stablehlo.broadcast_in_dim") == 2


def test_an_op_without_a_rule_is_named():
    op = Op("mystery", summary="", shape_rule=lambda x: (x,), eager_rule=lambda x: x)
    graph = record(lambda ctx, x: ctx.apply(op, (x,))[0], TensorSpec((2,), "f32"), name="f")
    with pytest.raises(
        GraphError, match=r"<node mystery at the root, .*regions_test\.py:\d+>: the op has no emission rule"
    ):
        text_of([graph])


def test_a_value_that_is_not_made_yet_is_named():
    graph = record(lambda c, x: c.ops.exp(c.ops.add(x, 1.0)), TensorSpec((2,), "f32"), input_names=["x"], name="f")
    emitter = Emitter(lambda text: None, ArgumentParameters())
    late: list[Node] = [node for node in graph.nodes if node.op is OPS["exp"]]
    with pytest.raises(GraphError, match=r"of add \(at .*\) is used before it is made: verify the graph"):
        emitter.nodes(late)
