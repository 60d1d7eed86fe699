"""Every supplied kernel has the gradient of jax's reference: inside of JAX, and by the gradients of its ops."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import ConfigSelectorChain, Executor, Kernel
from autotune.supplied import (
    LAYOUTS,
    AttentionConfig,
    AttentionKernel,
    GatedDeltaConfig,
    GatedDeltaKernel,
    GroupedAttentionKernel,
    LinearConfig,
    LinearKernel,
    RMSNormConfig,
    RMSNormKernel,
    RopeKernel,
    RopeKernelConfig,
    SoftmaxConfig,
    SoftmaxKernel,
    pack_weight,
)
from lang_core import ENCODINGS
from transformer_core import RopeMode

_EXECUTOR: Final = Executor(ConfigSelectorChain(policy="heuristics"))
# Most of the time goes into compiling.
_QUICKLY: Final[Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Case(NamedTuple):
    """Call of a kernel, in several configurations.

    Attributes:
        kernel: kernel.
        configs: configurations.
        args: arrays, those that are differentiated first.
        reference: function of JAX with the same result.
        kwargs: static keyword arguments.
        slopes: number of arrays that are differentiated; all if None.
    """

    kernel: Kernel[Any, Any]
    configs: Sequence[Any]
    args: tuple[Any, ...]
    reference: Callable[..., Any]
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - not written to
    slopes: int | None = None


def _normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    seen = mask & (jnp.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] >= jnp.arange(k.shape[2]))
    result = jax.nn.dot_product_attention(
        *(x.transpose(0, 2, 1, 3) for x in (q, k, v)), mask=jnp.broadcast_to(seen, (2, 4, 5, 9)), scale=0.3
    )
    return result.transpose(0, 2, 1, 3)


def _grouped(q: Any, k: Any, v: Any, bias: Any) -> Any:
    scores = jnp.einsum("bkgth,bksh->bkgts", q, k) * 0.3 + bias
    return jnp.einsum("bkgts,bksv->bkgtv", jax.nn.softmax(scores, -1), v)


def _unpacked(layout: str) -> Callable[..., Any]:
    """Returns the product with a weight in a layout."""
    forms = {
        "output_major": lambda w: w,
        "input_major": lambda w: w.T,
        "tiles": lambda w: w.transpose(0, 2, 1).reshape(-1, w.shape[1]),
    }
    return lambda x, w, b: x @ forms[layout](w).T + b


def _rms_norm(x: Any, weight: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 0.1) * weight


def _rope(split: bool) -> Callable[..., Any]:
    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        turning, rest = x[..., :6], x[..., 6:]
        a, b = (turning[..., :3], turning[..., 3:]) if split else (turning[..., ::2], turning[..., 1::2])
        turned = jnp.concatenate([-b, a], -1) if split else jnp.stack([-b, a], -1).reshape(turning.shape)
        # The kernel's tables have the sign of the sine in them.
        sign = jnp.where((jnp.arange(6) < 3) if split else (jnp.arange(6) % 2 == 0), -1.0, 1.0)
        return jnp.concatenate([turning * cos + turned * sin * sign, rest], -1)

    return rotate


def _gated_delta(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any) -> Any:
    results = []
    for t in range(q.shape[1]):
        state = state * jnp.exp(g[:, t])[..., None, None]
        u = beta[:, t, :, None] * (v[:, t] - jnp.einsum("bki,bkij->bkj", k[:, t], state))
        state = state + jnp.einsum("bki,bkj->bkij", k[:, t], u)
        results.append(jnp.einsum("bni,bnij->bnj", q[:, t], jnp.repeat(state, 2, 1)) * q.shape[-1] ** -0.5)
    return jnp.stack(results, 1), state


def _cases() -> dict[str, Case]:
    q, k, v = _normal(2, 4, 5, 6), _normal(2, 2, 9, 6, seed=1), _normal(2, 2, 9, 6, seed=2)
    mask = np.random.default_rng(3).random((5, 9)) < 0.7
    mask[:, 0] = True
    forms = AttentionConfig(), AttentionConfig("merged"), AttentionConfig("online", 2, 4)
    cases = {
        "attention": Case(AttentionKernel(), forms, (q, k, v, mask), _attention, {"scale": 0.3, "causal": True}, 3)
    }
    grouped = q.reshape(2, 2, 2, 5, 6), k, v, _normal(5, 9, seed=4)
    cases["grouped_attention"] = Case(GroupedAttentionKernel(), forms, grouped, _grouped, {"scale": 0.3})
    products = LinearConfig(), LinearConfig("flat", 2), LinearConfig("weight_first")
    for layout in LAYOUTS:
        if layout not in ENCODINGS:
            packed = pack_weight(_normal(8, 6, seed=1), layout, 2)
            given = _normal(2, 3, 6), packed, _normal(8, seed=2)
            cases[layout] = Case(LinearKernel(), products, given, _unpacked(layout), {"layout": layout})
    norms = RMSNormConfig("mean"), RMSNormConfig("dot")
    cases["rms_norm"] = Case(RMSNormKernel(), norms, (_normal(2, 3, 7), _normal(7, seed=1)), _rms_norm, {"eps": 0.1})
    softmaxes = tuple(map(SoftmaxConfig, ("divide", "reciprocal", "log")))
    cases["softmax"] = Case(SoftmaxKernel(), softmaxes, (_normal(2, 3, 7),), lambda x: jax.nn.softmax(x, -1))
    for mode in RopeMode:
        tables = _normal(3, 6, seed=1), _normal(3, 6, seed=2)
        ways = RopeKernelConfig("apply"), RopeKernelConfig("halves")
        reference = _rope(mode is RopeMode.SPLIT_HALF)
        cases[f"rope_{mode.name}"] = Case(RopeKernel(), ways, (_normal(2, 3, 8), *tables), reference, {"mode": mode})
    keys = _normal(2, 7, 2, 3, seed=1) / 2
    gates = -np.abs(_normal(2, 7, 2, seed=3)), 1 / (1 + np.exp(_normal(2, 7, 2, seed=4)))
    delta = _normal(2, 7, 4, 3), keys, _normal(2, 7, 2, 5, seed=2), *gates, _normal(2, 2, 3, 5, seed=5)
    cases["gated_delta"] = Case(GatedDeltaKernel(), (GatedDeltaConfig(1), GatedDeltaConfig(4)), delta, _gated_delta)
    return cases


_CASES: Final = _cases()


def _loss(function: Callable[..., Any], weights: Sequence[Any]) -> Callable[..., Any]:
    def loss(*args: Any) -> Any:
        pairs = zip(jax.tree.leaves(function(*args)), weights, strict=True)
        return sum(jnp.sum(result * weight) for result, weight in pairs)

    return loss


@pytest.mark.parametrize("name", _CASES)
def test_gradients_are_those_of_jaxs_reference(name: str) -> None:
    case = _CASES[name]
    numbers = tuple(range(len(case.args) if case.slopes is None else case.slopes))
    shapes = jax.tree.leaves(jax.eval_shape(case.reference, *case.args))
    weights = [_normal(*shape.shape, seed=9 + i) for i, shape in enumerate(shapes)]

    def every(*args: Any) -> Any:
        calls = [lambda *a, c=cfg: _EXECUTOR(case.kernel, *a, cfg=c, **case.kwargs) for cfg in case.configs]
        return [jax.grad(_loss(call, weights), numbers)(*args) for call in (case.reference, *calls)]

    truth, *slopes = jax.jit(every, compiler_options=_QUICKLY)(*case.args)
    output = tuple(weights) if len(weights) > 1 else weights[0]
    for cfg, in_jax in zip(case.configs, slopes, strict=True):
        _, pullback = _EXECUTOR.value_and_pullback(case.kernel, *case.args, cfg=cfg, **case.kwargs)
        by_ops = pullback(output)
        for number in numbers:
            wanted = np.asarray(truth[number])
            room = 2e-5 * np.abs(wanted).max()
            np.testing.assert_allclose(in_jax[number], wanted, rtol=0, atol=room, err_msg=f"{cfg}, {number}")
            np.testing.assert_allclose(by_ops[number], wanted, rtol=0, atol=room, err_msg=f"{cfg}, {number}")
        assert all(slope is None for slope in by_ops[len(numbers) :])


@pytest.mark.parametrize("form", ["direct", "unpacked"])
def test_x_has_the_gradient_of_the_product_with_the_unpacked_weight(form: Any) -> None:
    x, weight = _normal(2, 32), pack_weight(_normal(4, 32, seed=1), "q8_0")
    unpacked = ENCODINGS["q8_0"].unpacked(weight)
    gradient = jax.grad(lambda x: _summed(_EXECUTOR(LinearKernel(), x, weight, cfg=LinearConfig(form), layout="q8_0")))
    np.testing.assert_allclose(gradient(x), np.ones((2, 4)) @ unpacked, rtol=1e-5, atol=1e-5)
    _, pullback = _EXECUTOR.value_and_pullback(LinearKernel(), x, weight, cfg=LinearConfig(form), layout="q8_0")
    g = _normal(2, 4, seed=2)
    np.testing.assert_allclose(pullback(g)[0], g @ unpacked, rtol=1e-5, atol=1e-5)


def _summed(array: Any) -> Any:
    return jnp.sum(array)
