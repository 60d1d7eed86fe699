"""Kernels that are written in ctx.ops, inside of JAX's transformations: called, and compiled."""

import os
import subprocess
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import (
    CompositeKernel,
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    KernelError,
    device_fingerprint,
    find_labels_in_lowered,
    using_kernels,
)
from autotune._kernels_testing import chain
from autotune.compilers import _compiler
from compile_dag import record
from lang_core import EagerExecutionContext, OpError, TensorSpec, TraceEscapeError
from run_jax import JaxExecutionContext, JaxTensor, arrays_of

_CALLS: list[str] = []
_EXECUTOR = Executor(ConfigSelectorChain(policy="heuristics"))


class Gated(NamedTuple):
    """Two results."""

    gate: Any
    product: Any


class GatedKernel(Kernel[int, Gated]):
    """silu(scale * x @ w + b) and what silu takes, x in blocks of rows."""

    op_id = "tests.gated_in_jax"

    def run(self, x: Any, w: Any, *, cfg: int, ctx: Any, bias: Any = None, scale: float = 1.0) -> Gated:
        parts = ctx.ops.split(x, (x.shape[0] // cfg,) * cfg, 0)
        product = ctx.ops.concat([ctx.ops.dot_general(part, w, ((1,), (0,))) for part in parts], 0)
        product = ctx.ops.mul(product, scale)
        product = product if bias is None else ctx.ops.add(product, bias)
        return Gated(ctx.ops.silu(product), product)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> int:
        return 1

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[int]:
        return [1, 2]


class GatedByHand(GatedKernel):
    op_id = "tests.gated_by_hand_in_jax"

    def fwd_with_residuals(self, x: Any, w: Any, *, cfg: int, ctx: Any, **kwargs: Any) -> Any:
        _CALLS.append(type(ctx).__name__)
        output = self.run(x, w, cfg=cfg, ctx=ctx, **kwargs)
        return output, {"slope": ctx.ops.logistic(output.product)}

    def vjp(
        self, residuals: Any, output: Any, d_output: Any, x: Any, w: Any, *, cfg: int, ctx: Any, **kwargs: Any
    ) -> Any:
        ops, s = ctx.ops, residuals["slope"]
        assert all(isinstance(value, JaxTensor) for value in (s, *output, *d_output, x, w))
        slope = ops.mul(s, ops.add(ops.mul(output.product, ops.sub(1.0, s)), 1.0))
        d = ops.mul(ops.add(ops.mul(d_output[0], slope), d_output[1]), kwargs.get("scale", 1.0))
        return ops.dot_general(d, w, ((1,), (1,))), ops.dot_general(x, d, ((0,), (0,)))


def _arrays() -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    return jnp.asarray(random.standard_normal((4, 5)), "f4"), jnp.asarray(random.standard_normal((5, 3)), "f4")


def _truth(x: Any, w: Any) -> Any:
    product = 0.5 * x @ w
    return jnp.sum(jnp.sin(jax.nn.silu(product))) + jnp.sum(product**2)


def _loss(call: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        gate, product = call(x, w)
        return jnp.sum(jnp.sin(gate)) + jnp.sum(product**2)

    return loss


def _compiled(kernel: Any) -> Any:
    function = _EXECUTOR.compile(kernel, *_arrays(), scale=0.5, compiler="jax")
    return lambda x, w: function(x, w, scale=0.5)


_WAYS = {
    "called": lambda kernel: lambda x, w: _EXECUTOR(kernel, x, w, scale=0.5),
    "blocks": lambda kernel: lambda x, w: _EXECUTOR(kernel, x, w, scale=0.5, cfg=2),
    "compiled": _compiled,
    "context": lambda kernel: lambda x, w: arrays_of(_EXECUTOR(kernel, x, w, scale=0.5, ctx=JaxExecutionContext())),
}


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("kernel", [GatedKernel(), GatedByHand()], ids=["ops", "by hand"])
def test_a_kernel_in_ops_has_jaxs_transformations(kernel: Any, way: str) -> None:
    x, w = _arrays()
    call = _WAYS[way](kernel)
    loss = _loss(call)
    _CALLS.clear()
    value, slopes = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(x, w)
    wanted, truth = jax.value_and_grad(_truth, argnums=(0, 1))(x, w)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    for ours, theirs in zip(slopes, truth, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    assert set(_CALLS) == ({"JaxExecutionContext"} if isinstance(kernel, GatedByHand) else set())
    batch = jnp.stack([x, 2 * x, -x])
    batched = jax.vmap(lambda x: jax.tree.leaves(call(x, w))[1])(batch)
    np.testing.assert_allclose(batched, 0.5 * batch @ w, rtol=1e-5, atol=1e-6)
    per_example = jax.vmap(jax.grad(loss), (0, None))(batch, w)
    np.testing.assert_allclose(per_example[1], jax.grad(_truth)(2 * x, w), rtol=1e-5, atol=1e-5)


def test_results_are_arrays_and_in_the_callers_context_tensors() -> None:
    x, w = _arrays()
    seen: list[Any] = []

    def call(x: Any) -> Any:
        arrays = _EXECUTOR(GatedKernel(), x, w)
        tensors = _EXECUTOR(GatedKernel(), x, w, ctx=JaxExecutionContext())
        seen.extend((arrays, tensors))
        return arrays.gate + tensors.gate.data

    result = jax.jit(call)(x)
    np.testing.assert_allclose(result, 2 * jax.nn.silu(x @ w), rtol=1e-5)
    assert [type(value) for value in seen] == [Gated, Gated]
    assert isinstance(seen[0].gate, jax.Array)
    assert isinstance(seen[1].gate, JaxTensor)


def test_arrays_among_the_keywords_have_no_gradient() -> None:
    x, w = _arrays()

    def loss(x: Any, bias: Any) -> Any:
        return jnp.sum(_EXECUTOR(GatedByHand(), x, w, bias=bias).product)

    slopes = jax.jit(jax.grad(loss, argnums=(0, 1)))(x, jnp.ones(3))
    np.testing.assert_allclose(slopes[0], jnp.broadcast_to(w.sum(1), x.shape), rtol=1e-5)
    assert not slopes[1].any()


def test_the_pullback_of_a_kernel_in_ops_is_that_of_its_ops() -> None:
    """NumPy computes it of arrays with data, JAX of those without; integers and static arguments have none."""
    x, w = _arrays()
    given = jnp.ones((4, 3)), jnp.full((4, 3), 2.0)
    _, wanted = jax.vjp(lambda x, w: (jax.nn.silu(x @ w), x @ w), x, w)

    def pulled(x: Any, w: Any) -> Any:
        output, pullback = _EXECUTOR.value_and_pullback(GatedKernel(), x, w, bias=np.zeros(3, np.float32))
        return output, pullback(Gated(*given))

    for run in (pulled, jax.jit(pulled)):
        output, slopes = run(x, w)
        assert all(isinstance(array, jax.Array) for array in (*output, *slopes))
        for ours, theirs in zip(slopes, wanted(given), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    _, pullback = _EXECUTOR.value_and_pullback(GatedKernel(), np.asarray(x), np.asarray(w))
    assert all(type(slope) is np.ndarray for slope in pullback(Gated(*map(np.asarray, given))))
    with pytest.raises(KernelError, match=r"its result has 2 arrays, and a gradient of 1 was given"):
        pullback(np.ones((4, 3), np.float32))
    with pytest.raises(TraceEscapeError, match=r"an array, float32\[5,3\], reached a recorded kernel: make it an inp"):
        record(lambda ctx, x: _EXECUTOR.value_and_pullback(GatedKernel(), x, w, ctx=ctx)[0], TensorSpec((4, 5), "f32"))


def test_nothing_is_tuned_while_jax_traces_a_kernel_in_ops() -> None:
    made, events, clock = chain(lambda cfg: 1.0 / cfg)
    x, w = _arrays()
    executor = Executor(made)
    for ctx in ({}, {"ctx": JaxExecutionContext()}):
        jax.jit(lambda x, ctx=ctx: jax.tree.map(jnp.sum, executor(GatedKernel(), x, w, **ctx)))(x)
    assert clock.tuned == []
    assert events[0][1]["reason"] == "JAX traces the arguments, which have no data"


def test_the_label_is_in_what_jax_lowers() -> None:
    x, w = _arrays()
    lowered = jax.jit(lambda x: _EXECUTOR(GatedKernel(), x, w).gate).lower(x)
    (label,) = find_labels_in_lowered(lowered)
    assert label.startswith("tapeline_ops#tests.gated_in_jax@v0:")


def test_kernels_stand_for_composites_under_jit_and_grad() -> None:
    class Norm(Kernel[str, Any]):
        op_id = "tests.norm_in_jax"

        def run(self, x: Any, weight: Any = None, *, cfg: str, ctx: Any, eps: float) -> Any:
            _CALLS.append("norm")
            return ctx.ops.rms_norm(x, weight, eps)

        def heuristic_cfg(self, inv: Invocation[Any, Any]) -> str:
            return "plain"

    table = {"rms_norm": CompositeKernel(Norm(), lambda x, weight, eps: ((x, weight), {"eps": eps}))}

    def loss(x: Any) -> Any:
        ctx = JaxExecutionContext()
        with using_kernels(ctx, table, _EXECUTOR):
            return arrays_of(ctx.ops.sum(ctx.ops.sin(ctx.ops.rms_norm(x))))

    _CALLS.clear()
    x, _ = _arrays()
    slope = jax.jit(jax.grad(loss))(x)
    truth = jax.grad(lambda x: jnp.sum(jnp.sin(x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6))))(x)
    assert _CALLS == ["norm"]
    np.testing.assert_allclose(slope, truth, rtol=1e-4, atol=1e-6)


def test_arrays_of_64_bits_and_of_other_contexts_are_refused() -> None:
    x, w = _arrays()
    function = _EXECUTOR.compile(GatedKernel(), x, w, compiler="jax")
    with pytest.raises(OpError, match=r"f64 has 64 bits, and JAX computes in 32 until its 64-bit types are on"):
        function(np.ones((4, 5)), np.ones((5, 3)))
    eager = EagerExecutionContext().constant(np.ones((4, 5), np.float32))
    with pytest.raises(OpError, match=r"a JAX context takes its own tensors, arrays of JAX and NumPy, and numbers; f"):
        jax.jit(lambda w: _EXECUTOR(GatedKernel(), eager, w).gate)(w)
    with pytest.raises(KernelError, match=r"was given a recorded value and no context: pass ctx= that records"):
        record(lambda ctx, x: _EXECUTOR(GatedKernel(), x, w).gate, TensorSpec((4, 5), "f32"))


def test_a_compiler_of_the_users_without_a_context_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        name = "jax"

    monkeypatch.setitem(_compiler._COMPILERS, "jax", Plain)
    with pytest.raises(KernelError, match=r"the compiler registered as 'jax' has no context\(\): give it one"):
        jax.jit(lambda x: _EXECUTOR(GatedKernel(), x, x.T).gate)(jnp.ones((4, 5)))


_SHARDED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from autotune import ConfigSelectorChain, Executor
from autotune._in_jax_test import GatedByHand, GatedKernel

executor = Executor(ConfigSelectorChain(policy="heuristics"))
mesh = Mesh(np.array(jax.devices()[:2]), ("rows",))
x = np.arange(40, dtype=np.float32).reshape(8, 5) / 10 - 2
w = np.arange(15, dtype=np.float32).reshape(5, 3) / 10 - 1
for kernel in (GatedKernel(), GatedByHand()):
    def call(x, w):
        return executor(kernel, x, w, cfg=2).product
    split = jax.shard_map(call, mesh=mesh, in_specs=(P("rows"), P()), out_specs=P("rows"))
    np.testing.assert_allclose(jax.jit(split)(x, w), x @ w, rtol=1e-5, atol=1e-6)
    slope = jax.jit(jax.grad(lambda x, w: jnp.sum(split(x, w) ** 2)))(x, w)
    np.testing.assert_allclose(slope, 2 * (x @ w) @ w.T, rtol=1e-4, atol=1e-5)
print("shared")
"""


def test_devices_share_a_kernel_by_shard_map() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, **flags, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(
        [sys.executable, "-c", _SHARDED], env=environment, capture_output=True, text=True, check=False
    )
    assert (child.returncode, child.stdout) == (0, "shared\n"), child.stderr


class _Swapped(Kernel[int, Any]):
    """x * y of a mapping, and a gradient that names its parts in another order."""

    op_id = "tests.swapped"

    def run(self, parts: Any, *, cfg: int) -> Any:
        return parts["x"] * parts["y"]

    def heuristic_cfg(self, inv: Any) -> int:
        return 1

    def fwd_with_residuals(self, parts: Any, *, cfg: int) -> Any:
        return self.run(parts, cfg=cfg), None

    def vjp(self, residuals: Any, output: Any, d_output: Any, parts: Any, *, cfg: int) -> Any:
        return ({"y": d_output * parts["x"], "x": d_output * parts["y"]},)


def test_a_gradient_in_a_mapping_goes_by_its_names() -> None:
    executor = Executor(ConfigSelectorChain(policy="heuristics"))
    parts = {"x": jnp.float32(3.0), "y": jnp.float32(5.0)}
    slopes = jax.grad(lambda parts: executor(_Swapped(), parts))(parts)
    assert {name: float(slope) for name, slope in slopes.items()} == {"x": 5.0, "y": 3.0}


def test_the_key_of_jaxs_device_has_the_width_of_its_dtypes() -> None:
    keys = [device_fingerprint(jnp.ones(2))]
    with jax.enable_x64(True):
        keys.append(device_fingerprint(jnp.ones(2)))
    assert keys[0] != keys[1]
    assert device_fingerprint(jnp.ones(2)) == keys[0]


@pytest.mark.parametrize("prefix", ["tapeline_ops", "my-ops", "team.ops_2"])
@pytest.mark.parametrize("mode", ["hash", "json"])
def test_labels_are_found_in_what_jax_lowers_and_xla_compiles(
    prefix: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_OPS_STAMP", mode)
    executor, x = Executor(ConfigSelectorChain(policy="heuristics"), stamp_prefix=prefix), jnp.ones((2, 3))
    lowered = jax.jit(lambda x, w: executor(GatedKernel(), x, w).product * 2).lower(x, jnp.ones((3, 4)))
    wanted = find_labels_in_lowered(lowered)
    assert len(wanted) == 1
    assert wanted[0].startswith(f"{prefix}#{GatedKernel().op}:")
    compiled = lowered.compile()
    for text in (compiled, compiled.as_text(), lowered.as_text(debug_info=True)):
        assert find_labels_in_lowered(text) == wanted
        assert find_labels_in_lowered(text, prefix=prefix) == wanted
        assert find_labels_in_lowered(text, prefix="other_ops") == []


@pytest.mark.parametrize("op_id", ["\u00e9t\u00e9", "op@2", "op@v2", "a b", "a/b#c:d"])
def test_labels_of_ops_of_any_name_are_found(op_id: str) -> None:
    kernel, x = _Product(op_id), jnp.ones((2, 3))
    executor = Executor(ConfigSelectorChain(policy="heuristics"), stamp_prefix="more_ops")
    lowered = jax.jit(lambda x: executor(kernel, x, x)).lower(x)
    (label,) = find_labels_in_lowered(lowered)
    assert label.endswith(executor.explain(kernel, x, x).key.call)
    assert find_labels_in_lowered(lowered.compile()) == [label]
    assert find_labels_in_lowered(lowered, prefix="ops") == []


@pytest.mark.parametrize("prefix", ["", "a b", "a#b", 3, None, "a/b", "\u00e9"])
def test_a_prefix_that_no_text_can_have_is_refused(prefix: Any) -> None:
    with pytest.raises(KernelError, match="expected a text of letters, digits"):
        Executor(stamp_prefix=prefix)


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, lambda f: lambda x: jax.vmap(f)(x[None])])
def test_what_iree_compiled_says_that_it_has_no_transformations(transform: Any) -> None:
    x = np.ones((2, 3), np.float32)
    f = Executor(ConfigSelectorChain(policy="heuristics")).compile(_Product(), x, x, compiler="iree")
    np.testing.assert_array_equal(f(jnp.asarray(x), x), x)
    with pytest.raises(KernelError, match=r"JAX traces array 0, float32.* compile it with compiler='jax'"):
        transform(lambda x: jnp.sum(f(x, x)))(jnp.asarray(x))


class _Product(Kernel[int, Any]):
    op_id = "tests.product_of_two"

    def run(self, x: Any, y: Any, *, cfg: int, ctx: Any) -> Any:
        return ctx.ops.mul(x, y)

    def heuristic_cfg(self, inv: Any) -> int:
        return 1
