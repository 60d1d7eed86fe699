from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lang_core import OpError, bf16
from lang_core.ops._samples_testing import DRAWN, OPS_NOW, SEEDS


def _reference(
    q: Any, k: Any, v: Any, g: Any = None, beta: Any = None, state: Any = None, scale: float | None = None
) -> tuple[Any, Any]:
    """The recurrence in f64, token by token and head by head, as arXiv:2412.06464 (10) has it."""
    batch, tokens, heads, key = q.shape
    shared, value = v.shape[2:]
    after = np.zeros((batch, shared, key, value)) if state is None else state.astype(np.float64)
    o = np.zeros((batch, tokens, heads, value))
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    for b, head, t in np.ndindex(batch, shared, tokens):
        s = after[b, head]
        if g is not None:
            s = np.exp(g[b, t, head].astype(np.float64)).reshape(-1, 1) * s
        u = v[b, t, head]
        if beta is not None:
            u = np.float64(beta[b, t, head]) * (u - s.T @ k[b, t, head])
        after[b, head] = s = s + np.outer(k[b, t, head], u)
        for n in range(head * heads // shared, (head + 1) * heads // shared):
            o[b, t, n] = (key**-0.5 if scale is None else scale) * (s.T @ q[b, t, n])
    return o, after


def _operands(
    seed: int, tokens: int, per_channel: bool = False, group: int = 1, dtype: Any = np.float64
) -> dict[str, Any]:
    """Operands of 2 x 2 states of [6, 5], queries and keys of length 1."""
    random = np.random.default_rng(seed)
    batch, shared, key, value = 2, 2, 6, 5
    q, k = (random.standard_normal((batch, tokens, n, key)) for n in (shared * group, shared))
    decay = (batch, tokens, shared, key) if per_channel else (batch, tokens, shared)
    arrays = {
        "q": q / np.linalg.norm(q, axis=-1, keepdims=True),
        "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": random.standard_normal((batch, tokens, shared, value)),
        "g": -random.exponential(random.choice([0.01, 0.3, 5]), decay),
        "beta": random.random((batch, tokens, shared)),
        "state": random.standard_normal((batch, shared, key, value)),
    }
    return {name: x.astype(dtype) for name, x in arrays.items()}


def _arrays(results: tuple[Any, Any]) -> list[Any]:
    return [tensor.numpy() for tensor in results]


def _assert_near(actual: Any, wanted: Any, error: float) -> None:
    for mine, theirs in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=error, atol=error)


@given(
    seed=SEEDS,
    tokens=st.integers(1, 37),
    chunk=st.sampled_from((None, 1, 4, 16)),
    per_channel=st.booleans(),
    group=st.sampled_from((1, 3)),
    absent=st.sets(st.sampled_from(("g", "beta", "state"))),
    scale=st.sampled_from((None, 0.7)),
)
@DRAWN
def test_every_rule_and_chunk_size_is_the_recurrence(seed, tokens, chunk, per_channel, group, absent, scale):
    operands = {name: x for name, x in _operands(seed, tokens, per_channel, group).items() if name not in absent} | {
        "scale": scale
    }
    before = {name: x.copy() for name, x in operands.items() if isinstance(x, np.ndarray)}
    actual = _arrays(OPS_NOW.gated_delta_rule(**operands, chunk_size=chunk))
    _assert_near(actual, _reference(**operands), 1e-13)
    for name, x in before.items():
        np.testing.assert_array_equal(operands[name], x)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("pieces", [(1, 36), (16, 21), (5, 1, 1, 30), (33, 4)])
def test_a_sequence_in_pieces_gives_what_the_whole_gives(per_channel, pieces):
    operands = _operands(3, 37, per_channel)
    whole, last = _arrays(OPS_NOW.gated_delta_rule(**operands))
    state, outputs, at = operands.pop("state"), [], 0
    for size in pieces:
        part = {name: x[:, at : at + size] for name, x in operands.items()}
        o, state = OPS_NOW.gated_delta_rule(**part, state=state)
        outputs.append(o.numpy())
        at += size
    _assert_near([np.concatenate(outputs, 1), state.numpy()], [whole, last], 1e-13)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("gate", [0.0, -1e4, -3e38, -np.inf])
def test_extreme_gates(per_channel, gate):
    """Some gates are shut, or all are open; the small ones beside a shut one keep their digits."""
    operands = _operands(5, 41, per_channel, dtype=np.float32)
    operands["g"][:, 3::7] = gate
    operands["g"][1] = gate
    actual = _arrays(OPS_NOW.gated_delta_rule(**operands))
    _assert_near(actual, _reference(**operands), 2e-6)


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_long_sequence_does_not_overflow(per_channel):
    """Over a chunk e^-g grows beyond f32."""
    operands = _operands(6, 700, per_channel, dtype=np.float32)
    operands["g"] = -np.random.default_rng(6).exponential(6, operands["g"].shape).astype(np.float32)
    assert np.exp(-operands["g"][:, :32].sum(1).astype(np.float64)).min() > np.finfo(np.float32).max
    actual = _arrays(OPS_NOW.gated_delta_rule(**operands))
    _assert_near(actual, _reference(**operands), 2e-6)


def test_alike_keys_keep_their_digits():
    """The worst case of the triangular inverse: all entries below the diagonal are 1."""
    operands = _operands(7, 96, dtype=np.float32)
    operands["k"][:] = operands["k"][:, :1]
    operands["g"][:], operands["beta"][:] = 0, 1
    for chunk in (32, 96):
        _assert_near(_arrays(OPS_NOW.gated_delta_rule(**operands, chunk_size=chunk)), _reference(**operands), 2e-5)


def test_short_dtypes_are_computed_in_f32():
    operands = _operands(8, 21, dtype=bf16.numpy)
    o, state = OPS_NOW.gated_delta_rule(**operands)
    assert (o.dtype.name, state.dtype.name) == ("bf16", "bf16")
    wanted = _reference(**operands)
    for actual, exact in zip(_arrays((o, state)), wanted, strict=True):
        np.testing.assert_allclose(actual.astype(np.float64), exact, rtol=2**-8, atol=1e-5)
    operands.pop("state")
    o, state = OPS_NOW.gated_delta_rule(**operands)
    assert (o.dtype.name, state.dtype.name) == ("bf16", "f32")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("q", (2, 4, 3, 6)),
        ("q", (2, 4, 12)),
        ("k", (2, 5, 2, 6)),
        ("k", (2, 4, 0, 6)),
        ("v", (2, 4, 1, 5)),
        ("g", (2, 4, 2, 5)),
        ("g", (2, 4)),
        ("beta", (2, 4, 2, 1)),
        ("state", (2, 2, 5, 6)),
    ],
)
def test_operands_that_do_not_fit_are_refused(name, shape):
    operands = _operands(0, 4) | {name: np.ones(shape)}
    listed = ", ".join(map(str, shape))
    with pytest.raises(OpError, match=rf"gated_delta_rule of .*{name} \[{listed}\].*: wanted q \[B,T,N,Hk\], k "):
        OPS_NOW.gated_delta_rule(**operands)


def test_no_tokens_and_no_chunk_are_refused():
    with pytest.raises(OpError, match="T not 0"):
        OPS_NOW.gated_delta_rule(**_operands(0, 0))
    with pytest.raises(OpError, match="chunk_size must be 1 or more, found 0"):
        OPS_NOW.gated_delta_rule(**_operands(0, 4), chunk_size=0)
