"""Mixers with a state: a scan over many tokens is the steps of one; padding leaves no trace."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, Tensor, bf16, f32
from transformer_core.layers._cache import StateMixer
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._mamba2 import GateOrder, Mamba2, Mamba2Sizes
from transformer_core.layers._short_convolution import ShortConv
from transformer_core.layers._weights_testing import context_of

CTX = EagerExecutionContext()
_SIZES: dict[str, Any] = {"heads": 6, "head_size": 5, "groups": 2, "state_size": 4, "taps": 4}


def _mamba(gate: GateOrder = GateOrder.GATE_FIRST, **changes) -> Mamba2:
    return Mamba2(7, Mamba2Sizes(**_SIZES, gate=gate, **changes))


MIXERS: dict[str, Callable[[], StateMixer]] = {
    "short_conv": lambda: ShortConv(7, 3, bias=True),
    "mamba2": _mamba,
    "mamba2_norm_first": lambda: _mamba(GateOrder.NORM_FIRST, bias=True, output_bias=True, conv_bias=False),
    "mamba2_no_norm": lambda: _mamba(
        GateOrder.NO_NORM, input_scale=0.7, scales=(0.5, 1.5, 0.8, 2.0, 0.3), activation=Activation.GELU
    ),
}


@pytest.fixture(params=MIXERS)
def mixer(request: pytest.FixtureRequest) -> StateMixer:
    return MIXERS[request.param]()


def _x(tokens: int, size: int = 7) -> np.ndarray:
    return np.random.default_rng(tokens).standard_normal((2, tokens, size), np.float32)


def _empty(mixer: StateMixer):
    layout = mixer.cache_layout(2, 0)
    return layout.make(*(CTX.ops.zeros(spec.shape, spec.dtype) for spec in layout.specs.values()))


def _near(actual: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for one, other in zip(actual, wanted, strict=True):
        scale = np.abs(other.numpy()).max()
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("tokens", [2, 31, 33, 70])
def test_a_scan_is_as_many_steps(mixer: StateMixer, tokens: int):
    ctx, x, state, steps = context_of(mixer), _x(tokens), _empty(mixer), []
    scanned, last = mixer(ctx, x, state)
    whole, none = mixer(ctx, x)
    for token in range(tokens):
        y, state = mixer(ctx, x[:, token : token + 1], state)
        steps.append(y)
    assert none is None
    _near((scanned, whole), (CTX.ops.concat(steps, 1),) * 2)
    _near(last.tensors, state.tensors)


@pytest.mark.parametrize("count", [0, 1, 3, 8])
def test_padding_leaves_no_trace(mixer: StateMixer, count: int):
    ctx = context_of(mixer)
    before, x = mixer(ctx, _x(6), _empty(mixer))[1], _x(8)
    actual, state = mixer(ctx, x, before, ctx.ops.constant(count))
    if count:
        wanted, exact = mixer(ctx, x[:, :count], before)
        _near((ctx.ops.slice_axis(actual, 1, 0, count), *state.tensors), (wanted, *exact.tensors))
    else:
        _near(state.tensors, before.tensors)


def test_sequences_may_have_padding_of_their_own(mixer: StateMixer):
    ctx = context_of(mixer)
    before, x = mixer(ctx, _x(6), _empty(mixer))[1], _x(8)
    state = mixer(ctx, x, before, ctx.ops.constant([5, 2]))[1]
    for row, count in enumerate((5, 2)):
        exact = mixer(ctx, x, before, ctx.ops.constant(count))[1]
        for one, other in zip(state.tensors, exact.tensors, strict=True):
            np.testing.assert_array_equal(one.numpy()[row], other.numpy()[row])


def test_states_stay_f32_in_16_bit_models():
    mixer = Mamba2(7, Mamba2Sizes(**_SIZES), dtype=bf16)
    y, state = mixer(context_of(mixer), CTX.ops.cast(CTX.ops.constant(_x(5)), bf16), _empty(mixer))
    assert (y.dtype, state.conv.dtype, state.ssm.dtype, mixer.D.spec.dtype) == (bf16, bf16, f32, f32)


def test_steps_have_a_lower_bound():
    """A bound that is above every step takes the place of all of them."""
    plain, bounded = Mamba2(7, Mamba2Sizes(**_SIZES)), Mamba2(7, Mamba2Sizes(**_SIZES, least_step=50.0))
    ctx, x = context_of(plain), _x(3)
    steps = [mixer._steps(ctx, ctx.ops.constant(x[:, :, :6]), None).numpy() for mixer in (plain, bounded)]
    assert steps[0].max() < 50
    np.testing.assert_array_equal(steps[1], np.full_like(steps[0], 50.0))


def test_groups_must_divide_heads():
    wrong: dict[str, Any] = {**_SIZES, "groups": 4}
    with pytest.raises(ConfigError, match="mamba2: 4 groups do not divide 6 heads"):
        Mamba2Sizes(**wrong)
