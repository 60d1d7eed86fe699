import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compile_dag import record
from compile_dag.gradient import gradient
from compile_dag.gradient._checks import check, gradients, normal
from lang_core import GraphError, TensorSpec


@pytest.mark.parametrize("taken", [True, False])
def test_cond(taken: bool) -> None:
    """Checks that a value captured by one branch alone has a gradient of zeros where the other ran."""

    def fn(ctx, x, y):
        pred = ctx.ops.less(ctx.ops.sum(ctx.ops.constant([1.0 if taken else -1.0])), 2.0 if taken else -2.0)
        return ctx.ops.cond(
            pred,
            lambda x: (ctx.ops.mul(ctx.ops.exp(x), y), x),
            lambda x: (ctx.ops.sin(x), ctx.ops.mul(x, 3.0)),
            (x,),
        )

    def reference(x, y):
        return (jnp.exp(x) * y, x) if taken else (jnp.sin(x) + 0 * y, 3 * x)

    check(fn, reference, normal(2, 3), normal(3, seed=1))


def test_a_cond_of_a_cond() -> None:
    def fn(ctx, x, pred):
        inner = lambda: ctx.ops.cond(ctx.ops.logical_not(pred), lambda: (x,), lambda: (ctx.ops.mul(x, x),))  # noqa: E731
        return ctx.ops.cond(pred, inner, lambda: (ctx.ops.negate(x),))

    check(fn, lambda x, pred: jnp.where(pred, x * x, -x), normal(3), np.array(True))
    check(fn, lambda x, pred: jnp.where(pred, x * x, -x), normal(3), np.array(False))


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_loop_with_captures(trips: int) -> None:
    """A recurrent step: the state, a weight from around the loop, and a row of the input by the round's number."""

    def fn(ctx, h, w, rows):
        def body(i, h):
            row = ctx.ops.reshape(ctx.ops.dynamic_slice(rows, [i, 0], (1, 3)), (3,))
            return (ctx.ops.tanh(ctx.ops.add(ctx.ops.linear(h, w), row)),)

        return ctx.ops.fori_loop(trips, body, (h,))

    def reference(h, w, rows):
        for i in range(trips):
            h = jnp.tanh(w @ h + rows[i])
        return h + 0 * jnp.sum(w) + 0 * jnp.sum(rows)

    check(fn, reference, normal(3), normal(3, 3, seed=1), normal(5, 3, seed=2))


def test_values_that_a_loop_passes_on_swaps_and_gives_twice() -> None:
    def fn(ctx, x, y):
        return ctx.ops.fori_loop(3, lambda i, a, b, c: (b, ctx.ops.mul(a, x), c), (x, y, x))

    def reference(x, y):
        a, b, c = x, y, x
        for _ in range(3):
            a, b = b, a * x
        return a, b, c

    check(fn, reference, normal(4), normal(4, seed=1))


def test_a_loop_in_a_loop_and_a_cond_in_it() -> None:
    def fn(ctx, x):
        def outer(i, x):
            def inner(j, x):
                odd = ctx.ops.equal(ctx.ops.rem(j, 2), 1)
                return ctx.ops.cond(odd, lambda: (ctx.ops.sin(x),), lambda: (ctx.ops.mul(x, 1.5),))

            return ctx.ops.fori_loop(3, inner, (x,))

        return ctx.ops.fori_loop(2, outer, (x,))

    def reference(x):
        for _ in range(2):
            for j in range(3):
                x = jnp.sin(x) if j % 2 else x * 1.5
        return x

    check(fn, reference, normal(2, 3))


def counted(ctx, x, start, stop, step):
    return ctx.ops.while_loop(
        lambda i, x: ctx.ops.greater(i, stop),
        lambda i, x: (ctx.ops.sub(i, step), ctx.ops.mul(x, x)),
        (start, x),
    )[1]


def test_a_loop_that_counts_down_from_a_constant() -> None:
    check(lambda ctx, x: counted(ctx, x, ctx.ops.constant(9), 2, 3), lambda x: ((x * x) ** 2) ** 2, normal(3))


def test_the_gradient_of_a_loop_that_data_ends_is_refused() -> None:
    def fn(ctx, x, n):
        return ctx.ops.sum(counted(ctx, x, n, 0, 1))

    graph = record(fn, TensorSpec((3,), "f64"), TensorSpec((), "i32"), input_names=["x", "n"])
    message = (
        r"the gradient of a loop \(at the root, .*_control_test.py:\d+\) .* is not known when recording.*fori_loop"
    )
    with pytest.raises(GraphError, match=message):
        gradient(graph, "result", ["x"])


def test_a_loop_that_never_ends_is_refused() -> None:
    def fn(ctx, x):
        return ctx.ops.sum(ctx.ops.while_loop(lambda x: ctx.ops.constant(True), lambda x: (x,), (x,))[0])

    with pytest.raises(GraphError, match="how often it runs is not known"):
        gradient(record(fn, TensorSpec((3,), "f64"), input_names=["x"]), "result", ["x"])


def test_a_loop_of_integers_alone_has_no_gradient_and_needs_none() -> None:
    def fn(ctx, x, n):
        count = ctx.ops.while_loop(lambda i: ctx.ops.less(i, n), lambda i: (ctx.ops.add(i, 1),), (ctx.ops.constant(0),))
        return ctx.ops.mul(x, ctx.ops.cast(count[0], "f64"))

    (slope,) = gradients(fn, [np.array(2.0), np.array(5, np.int32)])
    assert slope == 5 * gradients(lambda ctx, x: x, [np.array(2.0)])[0]


def test_jax_agrees_on_a_loop() -> None:
    check(
        lambda ctx, x: ctx.ops.fori_loop(5, lambda i, x: (ctx.ops.cos(x),), (x,)),
        lambda x: jax.lax.fori_loop(0, 5, lambda i, x: jnp.cos(x), x),
        normal(3),
    )
