"""Rules of composites: the gradients of their bodies, and jax's."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from compile_dag import ComputeGraph, GraphExecutionContext, evaluate, record
from compile_dag.gradient import COMPOSITE_RULES, composite_gradient, gradient
from compile_dag.gradient._checks import check, gradients, normal, weighted_loss
from compile_dag.gradient._units import units_of
from lang_core import EagerExecutionContext, ExecutionContext, TensorSpec


def without_rules(fn: Callable[..., Any], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The gradients of the bodies."""
    rules = dict(COMPOSITE_RULES)
    COMPOSITE_RULES.clear()
    try:
        return gradients(fn, inputs)
    finally:
        COMPOSITE_RULES.update(rules)


def check_composite(fn: Callable[..., Any], reference: Callable[..., Any] | None, *inputs: np.ndarray) -> None:
    check(fn, reference, *inputs)
    for by_rule, by_body in zip(gradients(fn, list(inputs)), without_rules(fn, list(inputs)), strict=True):
        np.testing.assert_allclose(by_rule, by_body, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("silu", jax.nn.silu),
        ("softplus", jax.nn.softplus),
        ("gelu", lambda x: jax.nn.gelu(x, approximate=False)),
        ("gelu_tanh", jax.nn.gelu),
        ("relu", jax.nn.relu),
    ],
)
def test_activations(name, reference) -> None:
    check_composite(lambda ctx, x: getattr(ctx.ops, name)(x), reference, normal(3, 5) * 3)


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax(axis: int) -> None:
    check_composite(lambda ctx, x: ctx.ops.softmax(x, axis), lambda x: jax.nn.softmax(x, axis), normal(3, 5))


@pytest.mark.parametrize("axis", [0, -1])
def test_log_softmax(axis: int) -> None:
    x = normal(3, 5) * 20
    check_composite(lambda ctx, x: ctx.ops.log_softmax(x, axis), lambda x: jax.nn.log_softmax(x, axis), x)


def test_softmax_with_a_mask_and_a_row_of_none() -> None:
    where = normal(4, 5) > 0
    where[2] = False

    def reference(x):
        return jnp.where(where, jax.nn.softmax(jnp.where(where, x, -1e30), -1), 0.0)

    check_composite(lambda ctx, x: ctx.ops.softmax(x, -1, ctx.constant(where)), reference, normal(4, 5, seed=1))


@pytest.mark.parametrize("weighted", [False, True])
def test_rms_norm(weighted: bool) -> None:
    def reference(x, w=1.0):
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * w

    inputs = [normal(2, 3, 5), normal(5, seed=1)][: 1 + weighted]
    check_composite(lambda ctx, *xs: ctx.ops.rms_norm(*xs), reference, *inputs)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_layer_norm(count: int) -> None:
    def reference(x, w=1.0, b=0.0):
        centred = x - jnp.mean(x, -1, keepdims=True)
        return centred / jnp.sqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5) * w + b

    inputs = [normal(2, 3, 5), normal(5, seed=1), normal(5, seed=2)][:count]
    check_composite(lambda ctx, *xs: ctx.ops.layer_norm(*xs), reference, *inputs)


def jax_attention(mask: np.ndarray | None, scale: float | None, softcap: float | None) -> Callable[..., Any]:
    def reference(q, k, v):
        group = q.shape[1] // k.shape[1]
        k, v = (jnp.repeat(x, group, 1) for x in (k, v))
        scores = jnp.einsum("bnth,bnsh->bnts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
        scores = scores if softcap is None else jnp.tanh(scores / softcap) * softcap
        if mask is None:
            weights = jax.nn.softmax(scores, -1)
        else:
            weights = jnp.where(mask, jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), 0.0)
        return jnp.einsum("bnts,bnsh->bnth", weights, v)

    return reference


_MASK = np.tril(np.ones((3, 5), bool), 2)
_NONE = np.concatenate([np.zeros((1, 5), bool), _MASK[1:]])  # the first query looks nowhere


@pytest.mark.parametrize(
    ("mask", "scale", "softcap"),
    [
        (None, None, None),
        (_MASK, 0.3, None),
        (_NONE, None, 2.0),
        (normal(2, 4, 3, 5) > -0.5, None, None),
        (normal(2, 1, 3, 5) > -0.5, None, 1.5),
        (normal(1, 4, 3, 5) > -0.5, None, None),
    ],
)
def test_attention(mask, scale, softcap) -> None:
    def fn(ctx, q, k, v):
        given = None if mask is None else ctx.constant(mask)
        return ctx.ops.attention(q, k, v, given, scale, softcap)

    reference = jax_attention(mask, scale, softcap)
    check_composite(fn, reference, normal(2, 4, 3, 6), normal(2, 2, 5, 6, seed=1), normal(2, 2, 5, 7, seed=2))


@pytest.mark.parametrize(("shape", "softcap"), [((3, 5), 2.0), ((2, 4, 1, 5), None), ((4, 3, 1), None)])
def test_attention_with_a_learned_bias(shape: tuple[int, ...], softcap: float | None) -> None:
    mask = normal(2, 1, 3, 5) > -0.5

    def fn(ctx, q, k, v, bias):
        return ctx.ops.attention(q, k, v, ctx.constant(mask), softcap=softcap, bias=bias)

    def reference(q, k, v, bias):
        k, v = (jnp.repeat(x, 2, 1) for x in (k, v))
        scores = jnp.einsum("bnth,bnsh->bnts", q, k) * 6**-0.5
        scores = (scores if softcap is None else jnp.tanh(scores / softcap) * softcap) + bias
        weights = jnp.where(mask, jax.nn.softmax(jnp.where(mask, scores, -1e30), -1), 0.0)
        return jnp.einsum("bnts,bnsh->bnth", weights, v)

    inputs = normal(2, 4, 3, 6), normal(2, 2, 5, 6, seed=1), normal(2, 2, 5, 7, seed=2), normal(*shape, seed=3)
    check_composite(fn, reference, *inputs)


def test_attention_where_the_bias_hides_all() -> None:
    """A bias of -inf is a mask: no NaN comes of it, nor of a row that sees nothing."""
    bias = np.zeros((3, 5))
    bias[0] = bias[1, 2] = -np.inf

    def fn(ctx, q, k, v):
        return ctx.ops.attention(q, k, v, bias=ctx.constant(bias))

    check_composite(fn, jax_attention(bias == 0, None, None), *(normal(1, 2, n, 4, seed=n) for n in (3, 5, 5)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits(dtype) -> None:
    """Within a few roundings of the result in f64, in the inputs' dtype."""
    eps = 2.0**-11 if dtype is np.float16 else 2.0**-8
    programs: list[tuple[Callable[..., Any], list[np.ndarray]]] = [
        (lambda ctx, x: ctx.ops.softmax(x), [normal(3, 5)]),
        (lambda ctx, x: ctx.ops.gelu(x), [normal(3, 5)]),
        (lambda ctx, x, w: ctx.ops.rms_norm(x, w), [normal(3, 8), normal(8, seed=1)]),
        (
            lambda ctx, *qkv: ctx.ops.attention(*qkv),
            [normal(1, 4, 3, 6), normal(1, 2, 5, 6), normal(1, 2, 5, 6, seed=2)],
        ),
    ]
    for fn, exact in programs:
        narrow = [x.astype(dtype) for x in exact]
        actual = gradients(fn, narrow)
        wanted = gradients(fn, [x.astype(np.float64) for x in narrow])
        for mine, theirs in zip(actual, wanted, strict=True):
            assert mine.dtype == dtype
            np.testing.assert_allclose(mine.astype(np.float64), theirs, rtol=8 * eps, atol=24 * eps)


def recorded(fn: Callable[..., Any]) -> ComputeGraph:
    return record(weighted_loss(fn), TensorSpec((2, 4), "f64"), TensorSpec((4,), "f64"), input_names=["x", "w"])


def units(graph: ComputeGraph) -> list[str]:
    """Returns the names of the units of differentiation, where everything matters."""
    active = {value.number for node in graph.nodes for value in node.inputs}
    members = units_of(graph.nodes, graph.outputs.values(), active)
    return [unit.node.op.name if unit.call is None else unit.call.name for unit in members]


def scaled(ctx: ExecutionContext, x: Any, w: Any) -> Any:
    return ctx.composite("scaled", lambda x: ctx.ops.mul(ctx.ops.softmax(x), w), (x,))


@pytest.fixture
def doubled_rule():
    """A rule that is wrong on purpose, to see that it is used."""
    composite_gradient("scaled")(lambda step, g: (lambda: step.ops.mul(g, 2.0),))
    yield
    del COMPOSITE_RULES["scaled"]


def test_a_composite_without_a_rule_is_its_parts_and_those_may_have_one() -> None:
    assert units(recorded(scaled))[:2] == ["softmax", "mul"]


def test_the_outermost_call_that_has_a_rule_is_taken(doubled_rule) -> None:
    def fn(ctx, x, w):
        return ctx.composite("scaled", ctx.ops.softmax, (x,))

    assert units(recorded(fn))[0] == "scaled"
    graph = gradient(recorded(fn), "result", ["x"])
    ctx = EagerExecutionContext()
    inputs = {"x": ctx.constant(normal(2, 4)), "w": ctx.constant(normal(4))}
    weights = normal(2, 4, seed=0)
    np.testing.assert_allclose(evaluate(graph, ctx, inputs)["gradient.x"].numpy(), 2 * weights)


def test_a_body_that_uses_more_than_it_was_given_is_its_parts(doubled_rule) -> None:
    """Else the gradient of w would be lost."""
    assert units(recorded(scaled))[:2] == ["softmax", "mul"]


def test_a_call_of_which_a_value_is_used_outside_is_its_parts(doubled_rule) -> None:
    def fn(ctx, x, w):
        kept = []

        def body(x):
            kept.append(ctx.ops.exp(x))
            return ctx.ops.sin(kept[0])

        return ctx.ops.add(ctx.composite("scaled", body, (x,)), kept[0])

    assert units(recorded(fn))[:2] == ["exp", "sin"]


def test_a_call_that_gives_back_its_input_is_its_parts(doubled_rule) -> None:
    def fn(ctx, x, w):
        ctx.composite("scaled", lambda x: (ctx.ops.exp(x), x), (x,))
        return ctx.ops.mul(x, w)

    assert "scaled" not in units(recorded(fn))


def test_a_graph_whose_nodes_were_made_anew_is_differentiated_by_its_ops() -> None:
    """Recording a graph again drops the notes; the gradient stays."""

    def fn(ctx, x, w):
        return ctx.ops.rms_norm(ctx.ops.softmax(x), w)

    graph = recorded(fn)
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        outputs = evaluate(graph, ctx, {name: ctx.placeholder(name, v.spec) for name, v in graph.inputs.items()})
    again = tape.to_compute_graph(outputs)  # pyright: ignore[reportArgumentType]
    assert "softmax" not in units(again)
    eager = EagerExecutionContext()
    inputs = {"x": eager.constant(normal(2, 4)), "w": eager.constant(normal(4, seed=1))}
    for name in ("x", "w"):
        mine, theirs = (evaluate(gradient(g, "result", [name]), eager, inputs) for g in (graph, again))
        np.testing.assert_allclose(mine[f"gradient.{name}"].numpy(), theirs[f"gradient.{name}"].numpy(), rtol=1e-10)
