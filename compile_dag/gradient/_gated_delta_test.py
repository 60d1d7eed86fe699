from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from compile_dag import record
from compile_dag.gradient import COMPOSITE_RULES, value_and_gradient
from compile_dag.gradient._checks import check, gradients, normal, weighted_loss, weights_for
from lang_core import EagerExecutionContext, TensorSpec


def _backward(q: Any, k: Any, v: Any, state: Any, g: Any = None, beta: Any = None) -> list[Any]:
    """The gradients of the weighted loss, token by token from the last one back, in f64.

    With A = e^g, P = A S_{t-1}, m = P^T k, u = beta (v - m) and dS the gradient of the state after the token:
    ``dq = S do, dS += q do^T, dk = dS u, du = dS^T k, dv = beta du, dbeta = (v - m) . du, dm = -beta du,
    dk += P dm, dS += k dm^T, dg = A S_{t-1} . dS, dS_{t-1} = A dS``. Without beta u = v, and dm is 0.
    """
    batch, tokens, heads, _ = q.shape
    shared, value = v.shape[2:]
    of_o = weights_for(TensorSpec((batch, tokens, heads, value), "f64"), 0)
    of_last = weights_for(TensorSpec(state.shape, "f64"), 1)
    dq, dk, dv, d_first = (np.zeros(x.shape) for x in (q, k, v, state))
    dg, dbeta = (None if x is None else np.zeros(x.shape) for x in (g, beta))
    for b, head in np.ndindex(batch, shared):
        queries = range(head * heads // shared, (head + 1) * heads // shared)
        states = [state[b, head]]
        steps: list[Any] = []
        for t in range(tokens):
            decay = np.ones((1, 1)) if g is None else np.exp(g[b, t, head]).reshape(-1, 1)
            kept = decay * states[-1]
            known = np.zeros(value) if beta is None else kept.T @ k[b, t, head]
            rate = 1.0 if beta is None else beta[b, t, head]
            u = rate * (v[b, t, head] - known)
            steps.append((decay, kept, known, rate, u))
            states.append(kept + np.outer(k[b, t, head], u))
        ds = of_last[b, head].copy()
        for t in reversed(range(tokens)):
            decay, kept, known, rate, u = steps[t]
            for n in queries:
                dq[b, t, n] = states[t + 1] @ of_o[b, t, n]
                ds += np.outer(q[b, t, n], of_o[b, t, n])
            du = ds.T @ k[b, t, head]
            dv[b, t, head] = rate * du
            dk[b, t, head] = ds @ u
            if dbeta is not None:
                dbeta[b, t, head] = (v[b, t, head] - known) @ du
                dk[b, t, head] -= kept @ (rate * du)
                ds -= np.outer(k[b, t, head], rate * du)
            if dg is not None:
                dg[b, t, head] = (kept * ds).sum(1 if dg.ndim == 4 else None)
            ds = decay * ds
        d_first[b, head] = ds
    return [x for x in (dq, dk, dv, d_first, dg, dbeta) if x is not None]


def _operands(tokens: int, per_channel: bool = False, group: int = 1, dtype: Any = np.float64) -> list[Any]:
    """q, k, v, state, g, beta."""
    batch, shared, key, value = 2, 2, 4, 3
    q, k = (normal(batch, tokens, n, key, seed=n) for n in (shared * group, shared))
    g = -np.abs(normal(batch, tokens, shared, key) if per_channel else normal(batch, tokens, shared))
    beta = 1 / (1 + np.exp(-normal(batch, tokens, shared, seed=5)))
    operands = [q / 2, k / 2, normal(batch, tokens, shared, value), normal(batch, shared, key, value), g, beta]
    return [x.astype(dtype) for x in operands]


def _rule(chunk: int | None) -> Any:
    def rule(ctx: Any, q: Any, k: Any, v: Any, state: Any, g: Any = None, beta: Any = None) -> Any:
        return ctx.ops.gated_delta_rule(q, k, v, g, beta, state, 1.0, chunk)

    return rule


def _check(chunk: int | None, operands: list[Any]) -> None:
    check(_rule(chunk), None, *operands)  # against differences
    for actual, wanted in zip(gradients(_rule(chunk), operands), _backward(*operands), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("tokens", "chunk", "group"), [(1, None, 1), (5, None, 2), (7, 3, 1), (8, 4, 2), (3, 1, 1)])
def test_gradients_are_those_of_the_recurrence(tokens: int, chunk: int | None, group: int, per_channel: bool) -> None:
    _check(chunk, _operands(tokens, per_channel, group))


@pytest.mark.parametrize("count", [4, 5])
def test_without_beta_and_without_gates(count: int) -> None:
    _check(3, _operands(7)[:count])


def test_shut_gates_have_gradients_too() -> None:
    operands = _operands(7)
    operands[4][:, 2] = -np.inf
    for slope in gradients(_rule(3), operands):
        assert np.isfinite(slope).all()


def test_short_dtypes_are_computed_in_f32() -> None:
    wide, short = _operands(7, dtype=np.float32), _operands(7, dtype=np.float16)
    for actual, exact in zip(gradients(_rule(3), short), gradients(_rule(3), wide), strict=True):
        assert actual.dtype == np.float16
        np.testing.assert_allclose(actual.astype(np.float32), exact, rtol=2e-2, atol=5e-3)


def test_only_what_is_wanted_is_computed_and_only_states_between_chunks_are_kept(monkeypatch: Any) -> None:
    """In one round's values nothing is as large as the sequence; a loop's own gradient keeps [rounds, T, ..]."""
    operands = [TensorSpec(x.shape, "f64") for x in _operands(30)]

    def largest() -> int:
        slope = value_and_gradient(weighted_loss(_rule(3)), wrt=(1,))
        graph = record(lambda ctx, *tensors: slope(ctx, *tensors)[1][0], *operands, name="step")
        return max(value.spec.size for node in graph.nodes for value in node.results)

    with_rule = largest()
    monkeypatch.delitem(COMPOSITE_RULES, "gated_delta_rule")
    assert largest() >= 10 * 2 * 30 * 2 * 3  # rounds times the size of o
    assert with_rule < 4 * 2 * 30 * 2 * 4


@pytest.mark.parametrize("tokens", [1, 4])
def test_the_causal_convolution(tokens: int) -> None:
    def conv(ctx: Any, x: Any, weight: Any, bias: Any, state: Any) -> Any:
        return ctx.ops.causal_conv(x, weight, bias, state)

    def reference(x: Any, weight: Any, bias: Any, state: Any) -> Any:
        whole = jnp.concatenate([state, x], 1)
        y = sum(whole[:, tap : tap + tokens] * weight[:, tap] for tap in range(3)) + bias
        return y, whole[:, tokens:]

    check(conv, reference, normal(2, tokens, 5), normal(5, 3), normal(5), normal(2, 2, 5))


def test_an_eager_gradient_of_a_long_sequence() -> None:
    ctx = EagerExecutionContext()
    operands = [ctx.constant(x) for x in _operands(70, dtype=np.float32)]
    value, slopes = value_and_gradient(weighted_loss(_rule(None)), wrt=(0, 1, 2, 3, 4, 5))(ctx, *operands)
    assert np.isfinite(float(value))
    assert [x.spec for x in slopes] == [x.spec for x in operands]
