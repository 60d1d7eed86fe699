from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from compile_dag import ComputeGraph, evaluate, record, regions_of, verify
from compile_dag.testing import DRAWN, INPUTS, PROGRAMS, Program, eager, input_tensors, same
from compile_hlo.passes import without_common_subexpressions, without_dead_code
from lang_core import ExecutionContext, Module, Op, Parameter, Tensor, TensorSpec

X = TensorSpec((2, 3), "f32")


def merged(fn: Callable[..., Any], *specs: TensorSpec) -> ComputeGraph:
    graph = without_common_subexpressions(record(fn, *(specs or (X,))))
    verify(graph)
    return graph


def count(graph: ComputeGraph) -> dict[str, int]:
    return dict(Counter(node.op.name for node in graph.nodes))


def test_what_is_computed_twice_is_computed_once() -> None:
    def twice(ctx: ExecutionContext, x: Tensor) -> Tensor:
        return ctx.ops.add(ctx.ops.sin(ctx.ops.exp(x)), ctx.ops.sin(ctx.ops.exp(x)))

    graph = merged(twice)
    assert count(graph) == {"exp": 1, "sin": 1, "add": 1}
    assert graph.nodes[-1].inputs[0] is graph.nodes[-1].inputs[1]


def test_outputs_are_replaced_and_keep_their_names() -> None:
    graph = merged(lambda ctx, x: {"a": ctx.ops.exp(x), "b": ctx.ops.exp(x), "x": x})
    assert list(graph.outputs) == ["a", "b", "x"]
    assert graph.outputs["a"] is graph.outputs["b"]
    assert graph.outputs["x"] is graph.inputs["x"]


def test_every_result_of_an_op_is_replaced() -> None:
    def sorted_twice(ctx: ExecutionContext, x: Tensor) -> tuple[Tensor, ...]:
        return *ctx.ops.sort(x, 1), *ctx.ops.sort(x, 1), *ctx.ops.sort(x, 0)

    graph = merged(sorted_twice)
    results = list(graph.outputs.values())
    assert count(graph) == {"sort": 2}
    assert all(a is b for a, b in zip(results[:2], results[2:4], strict=True))
    assert results[0] is not results[4]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (lambda o, x: o.sum(x, 0), lambda o, x: o.sum(x, 1)),
        (lambda o, x: o.sum(x, 0), lambda o, x: o.sum(x, 0, keepdims=True)),
        (lambda o, x: o.sum(x, 0), lambda o, x: o.prod(x, 0)),
        (lambda o, x: o.cast(x, "f16"), lambda o, x: o.cast(x, "bf16")),
        (lambda o, x: o.sub(x, o.exp(x)), lambda o, x: o.sub(o.exp(x), x)),
        (lambda o, x: o.iota((3,), 0, "i32"), lambda o, x: o.iota((3,), 0, "i64")),
    ],
)
def test_other_ops_attributes_and_operands_stay_apart(a: Any, b: Any) -> None:
    graph = merged(lambda ctx, x: (a(ctx.ops, x), b(ctx.ops, x)))
    assert graph.outputs["result0"] is not graph.outputs["result1"]


def bits(pattern: int, dtype: str = "f4") -> np.ndarray:
    return np.array([pattern], f"u{dtype[1:]}").view(dtype)


ONE_CONSTANT = {
    "number": (np.float32(1.5), np.float32(1.5)),
    "array": (np.arange(3), np.arange(3)),
    "NaN of the same bits": (bits(0x7FC00001), bits(0x7FC00001)),
    "64 bytes": (np.arange(8.0), np.arange(8.0)),
}
TWO_CONSTANTS = {
    "zeros of other signs": (np.float32(0.0), np.float32(-0.0)),
    "NaNs of other bits": (bits(0x7FC00001), bits(0x7FC00002)),
    "NaNs of other signs": (bits(0x7FC00000), bits(0xFFC00000)),
    "dtypes": (np.float32(0), np.int32(0)),
    "truth and one": (np.array(True), np.array(1, np.uint8)),
    "shapes": (np.zeros((2, 1), np.float32), np.zeros((1, 2), np.float32)),
    "ranks": (np.zeros((), np.float32), np.zeros((1,), np.float32)),
    "values": (np.arange(3), np.arange(1, 4)),
    "more than 64 bytes": (np.arange(9.0), np.arange(9.0)),
}


def constants(a: Any, b: Any) -> ComputeGraph:
    return merged(lambda ctx, x: (ctx.ops.constant(a), ctx.ops.constant(b)))


@pytest.mark.parametrize("name", ONE_CONSTANT)
def test_small_constants_of_equal_bits_are_one(name: str) -> None:
    assert count(constants(*ONE_CONSTANT[name])) == {"constant": 1}


@pytest.mark.parametrize("name", TWO_CONSTANTS)
def test_other_constants_stay_apart(name: str) -> None:
    assert count(constants(*TWO_CONSTANTS[name])) == {"constant": 2}


def test_constants_of_equal_bytes_and_other_dtypes_stay_apart() -> None:
    graph = merged(lambda ctx, x: (ctx.ops.constant(1.0, "f16"), ctx.ops.constant(0.0078125, "bf16")))
    assert len({node.attribute("value").array.tobytes() for node in graph.nodes}) == 1
    assert count(graph) == {"constant": 2}


class Model(Module):
    def __init__(self) -> None:
        self.a, self.b = Parameter((3,), "f32"), Parameter((3,), "f32")

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        for parameter in (self.a, self.b, self.a):
            x = ctx.ops.add(x, ctx.parameter(parameter))
        return x


def test_a_parameter_is_read_once() -> None:
    graph = without_common_subexpressions(record(Model(), X, input_names=["x"]))
    verify(graph)
    assert count(graph) == {"parameter": 2, "add": 3}
    assert list(graph.parameters()) == ["a", "b"]


def test_the_stretches_between_the_ends_of_blocks_stay_apart() -> None:
    def blocks(ctx: ExecutionContext, x: Tensor) -> list[Tensor]:
        results = [ctx.ops.exp(x)]
        for name in ("layers.0", "layers.1"):
            with ctx.block(name):
                results += [ctx.ops.exp(x), ctx.ops.exp(x)]
        return [*results, ctx.ops.exp(x)]

    graph = merged(blocks)
    assert [node.block for node in graph.nodes] == ["", "layers.0", "layers.1", ""]
    before, b, c, d, e, after = graph.outputs.values()
    assert b is c
    assert d is e
    assert before is not after  # the text of what follows a block does not depend on what stands before it


def capturing(ctx: ExecutionContext, x: Tensor, pred: Tensor) -> tuple[Tensor, ...]:
    first, second, third = ctx.ops.exp(x), ctx.ops.exp(x), ctx.ops.exp(x)

    def body(v: Tensor) -> tuple[Tensor]:
        return ctx.ops.cond(pred, lambda: (ctx.ops.add(v, third),), lambda: (second,))  # pyright: ignore[reportReturnType]

    looped = ctx.ops.while_loop(lambda v: ctx.ops.all(ctx.ops.less(v, second)), body, (first,))
    return ctx.ops.cond(pred, lambda: (second, *looped), lambda: (first, third))


def test_what_regions_capture_is_replaced_at_every_depth() -> None:
    graph = merged(capturing, X, TensorSpec((), "bool"))
    assert count(graph) == {"exp": 1, "while": 1, "cond": 1}
    first = graph.nodes[0].results[0]
    loop, branch = graph.nodes[1:]
    cond, body = regions_of(loop)
    assert cond.captures == (first,)
    assert [value is first for value in body.captures] == [False, True]
    assert branch.attribute("on_true").captures == (first, loop.results[0])
    assert list(branch.attribute("on_false").outputs.values()) == [first, first]


def test_nodes_with_regions_are_kept() -> None:
    def twice(ctx: ExecutionContext, x: Tensor, pred: Tensor) -> tuple[Tensor, ...]:
        return tuple(ctx.ops.cond(pred, lambda: (x,), lambda: (x,))[0] for _ in range(2))

    assert count(merged(twice, X, TensorSpec((), "bool"))) == {"cond": 2}


@DRAWN
@given(program=PROGRAMS)
def test_merged_programs_compute_the_same(program: Program) -> None:
    graph, ctx = record(program, *INPUTS.values(), input_names=list(INPUTS)), eager()
    before = str(graph)
    once = without_common_subexpressions(graph)
    verify(once)
    assert str(graph) == before
    assert str(without_common_subexpressions(once)) == str(once)
    inputs = input_tensors(ctx)
    assert same(evaluate(once, ctx, inputs), evaluate(graph, ctx, inputs))


@DRAWN
@given(program=PROGRAMS)
def test_passes_work_in_any_order(program: Program) -> None:
    graph, ctx = record(program, *INPUTS.values(), input_names=list(INPUTS)), eager()
    one = without_dead_code(without_common_subexpressions(graph))
    other = without_common_subexpressions(without_dead_code(graph))
    verify(one)
    verify(other)
    inputs = input_tensors(ctx)
    assert same(evaluate(one, ctx, inputs), evaluate(other, ctx, inputs))
    assert count(one) == count(other)


def test_calls_of_composites_survive_with_their_inputs_replaced():
    def fn(ctx, x, w):
        one, other = ctx.ops.exp(x), ctx.ops.exp(x)
        return ctx.ops.add(ctx.ops.rms_norm(one, w, 1e-5), ctx.ops.rms_norm(ctx.ops.sin(other), w, 1e-5))

    graph = record(fn, TensorSpec((2, 3), "f32"), TensorSpec((3,), "f32"), name="f")
    merged = without_common_subexpressions(graph)
    assert sum(node.op.name == "exp" for node in merged.nodes) == 1
    calls = {node.call for node in merged.nodes if node.call is not None}
    assert [call.name for call in calls] == ["rms_norm"] * 2
    made = {value.number for node in merged.nodes for value in node.results}
    for call in calls:
        assert {call.inputs[0].number, *(value.number for value in call.results)} <= made


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, True), (1, 1.0), ((0.0,), (-0.0,))])
def test_attributes_that_compare_equal_and_are_others_stay_apart(one: Any, other: Any) -> None:
    op = Op(
        "test.told", attributes=("value",), summary="", shape_rule=lambda x, value: (x,), eager_rule=lambda x, value: x
    )

    def told(ctx: ExecutionContext, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(ctx.apply(op, (x,), (value,))[0] for value in (one, other, one))

    results = list(merged(told).outputs.values())
    assert results[0] is results[2]
    assert results[0] is not results[1]
