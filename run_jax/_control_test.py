"""Loops and branches on JAX's arrays: run, traced, differentiated, and their contracts."""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lang_core import EagerExecutionContext, OpError, RecordingError
from run_jax import JaxExecutionContext

# JAX takes time that grows with the square of the depth.
_DEPTH = 200 if os.environ.get("TAPELINE_LONG") else 60


def _looped(x: Any, most: Any, counted: Any = False) -> Any:
    """x^8, by a loop of 3 rounds."""
    ctx: Any = JaxExecutionContext()
    if counted:
        return ctx.ops.fori_loop(3, lambda i, y: (ctx.ops.mul(y, y),), (ctx.tensor(x),))[0].data
    body = lambda i, y: (ctx.ops.add(i, 1), ctx.ops.mul(y, y))  # noqa: E731
    start = ctx.ops.constant(0, "i32"), ctx.tensor(x)
    return ctx.ops.while_loop(lambda i, _: ctx.ops.less(i, 3), body, start, most)[1].data


def test_loops_run_and_those_of_known_length_are_differentiated() -> None:
    assert float(jax.jit(_looped, static_argnums=1)(1.5, None)) == 1.5**8
    assert float(_looped(1.5, None)) == 1.5**8
    for arguments in ((3,), (5,), (None, True)):
        value, slope = jax.value_and_grad(lambda x, given=arguments: _looped(x, *given))(1.5)
        assert (float(value), float(slope)) == (1.5**8, 8 * 1.5**7)
    with pytest.raises(ValueError, match=r"Reverse-mode differentiation does not work for lax\.while_loop"):
        jax.grad(lambda x: _looped(x, None))(1.5)


def test_branches_run_at_once_or_traced() -> None:
    def chosen(pred: Any, x: Any) -> Any:
        ctx: Any = JaxExecutionContext()
        return ctx.ops.cond(ctx.tensor(pred), lambda y: (ctx.ops.sin(y),), lambda y: (ctx.ops.mul(y, x),), (x,))[0].data

    x = jnp.asarray(2.0)
    for pred, slope in ((True, np.cos(2.0)), (False, 4.0)):
        assert float(chosen(pred, x)) == pytest.approx(np.sin(2.0) if pred else 4.0)
        assert float(jax.jit(jax.grad(chosen, argnums=1))(jnp.asarray(pred), x)) == pytest.approx(slope)
    both = jax.vmap(chosen, (0, None))(jnp.array([True, False]), x)
    np.testing.assert_allclose(both, [np.sin(2.0), 4.0], rtol=1e-6)


def test_loops_and_branches_that_break_their_contract_are_refused() -> None:
    ctx: Any = JaxExecutionContext()
    x = ctx.constant([1.0, 2.0])
    with pytest.raises(OpError, match=r"while_c1: cond returns \(f32\[2\],\)"):
        ctx.ops.while_loop(lambda y: y, lambda y: (y,), (x,))
    with pytest.raises(OpError, match=r"while_c2: body returns \(f32\[\],\) for values \(f32\[2\],\)"):
        ctx.ops.fori_loop(2, lambda i, y: (ctx.ops.sum(y),), (x,))
    for pred in (x, ctx.constant(1)):
        with pytest.raises(OpError, match=r"cond_c1: pred is"):
            ctx.ops.cond(pred, lambda: (x,), lambda: (x,))
    with pytest.raises(OpError, match=r"cond_c2: the branches return \(f32\[2\],\) and \(f32\[\],\)"):
        jax.jit(lambda p: ctx.ops.cond(p, lambda: (x,), lambda: (ctx.ops.sum(x),))[0].data)(jnp.asarray(True))


def test_branches_and_loops_that_nest_deep_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that calls itself without an end is a typed error."""

    def deep(ctx: Any, x: Any, depth: int) -> Any:
        if depth == 0:
            return x
        if depth % 50 == 0:
            proceeds = lambda i, _: ctx.ops.less(i, 1)  # noqa: E731
            once = lambda i, v: (ctx.ops.add(i, 1), deep(ctx, v, depth - 1))  # noqa: E731
            return ctx.ops.while_loop(proceeds, once, (ctx.ops.constant(0, "i32"), x))[1]
        pred = ctx.ops.greater(ctx.ops.sum(x), float(depth))
        return ctx.ops.cond(pred, lambda a: (deep(ctx, a, depth - 1),), lambda a: (ctx.ops.negate(a),), (x,))[0]

    eager, ctx = EagerExecutionContext(), JaxExecutionContext()
    for value in (1000.0, 40.0):
        x = np.full(2, value, np.float32)
        wanted = deep(eager, eager.constant(x), _DEPTH).numpy()
        np.testing.assert_array_equal(deep(ctx, ctx.tensor(x), _DEPTH).numpy(), wanted)
    monkeypatch.setattr("lang_core._nesting._FRAMES", 3000)
    with pytest.raises(RecordingError, match="functions call each other more than 3000 deep"):
        deep(ctx, ctx.tensor(np.full(2, 1e9, np.float32)), -1)
