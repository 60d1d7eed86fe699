"""The context on JAX's arrays: transformations, dtypes, typed errors, parameters, loops and branches."""

import doctest
import os
import subprocess
import sys
import threading
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import run_jax
from lang_core import (
    ENCODINGS,
    CheckpointError,
    EagerExecutionContext,
    GraphError,
    MappingWeights,
    Module,
    OpError,
    Parameter,
    TraceEscapeError,
)
from run_jax import JaxExecutionContext, JaxTensor, _function, arrays_of, computes, jax_function, parameter_arrays


class Affine(Module):
    """x [.., 3] @ weight [2, 3].T + bias [2], read in the dtype of the parameters."""

    def __init__(self, dtype: str = "f32") -> None:
        self.weight = Parameter((2, 3), dtype)
        self.bias = Parameter((2,), dtype)

    def forward(self, ctx: Any, x: Any) -> Any:
        return ctx.tag(ctx.ops.linear(x, ctx.parameter(self.weight), ctx.parameter(self.bias)), "y")


def _arrays() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {"weight": jnp.asarray(random.normal(size=(2, 3)), "f4"), "bias": jnp.asarray([0.5, -1.0], "f4")}


def test_a_module_is_a_function_that_jax_transforms() -> None:
    parameters, x = _arrays(), np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    function = jax_function(Affine())
    wanted = x @ parameters["weight"].T + parameters["bias"]
    np.testing.assert_allclose(function(parameters, x), wanted, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(function)(parameters, x), wanted, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(function, (None, 0))(parameters, x), wanted, rtol=1e-6)
    slopes = jax.jit(jax.grad(lambda p, x: jnp.sum(function(p, x) ** 2)))(parameters, x)
    truth = jax.grad(lambda p: jnp.sum((x @ p["weight"].T + p["bias"]) ** 2))(parameters)
    for path in parameters:
        np.testing.assert_allclose(slopes[path], truth[path], rtol=1e-5)


def test_ops_have_the_modules_path_in_what_jax_lowers() -> None:
    class Model(Module):
        def __init__(self) -> None:
            self.layers = [Affine(), Affine()]

        def forward(self, ctx: Any, x: Any) -> Any:
            return self.layers[1](ctx, x)

    arrays = {f"layers.1.{path}": array for path, array in _arrays().items()}
    text = jax.jit(jax_function(Model())).lower(arrays, np.ones((4, 3), np.float32)).as_text(debug_info=True)
    assert "/layers.1/dot_general" in text


def test_a_batch_of_ops_that_index_is_the_ops_one_by_one() -> None:
    """An index beyond the end is clamped or dropped in each element of the batch."""
    x = jnp.arange(30, dtype=jnp.float32).reshape(3, 5, 2)
    places = jnp.array([[4, -3], [9, 0], [1, 1]], jnp.int32)

    def rows(x: Any, places: Any) -> Any:
        ctx: Any = JaxExecutionContext()
        taken = ctx.ops.take(x, places, 0)
        update = ctx.ops.dynamic_update_slice(x, ctx.ops.mul(taken, 2.0), (places[0], 0))
        updates = ctx.ops.broadcast(ctx.ops.cast(places[:, None], "f32"), (2, 2))
        indices = ctx.ops.broadcast(places[:, None], (2, 2))
        order = ctx.ops.sort(ctx.ops.scatter(x, indices, updates, 0, "add"), 0, descending=True)
        return arrays_of((update, order))

    batched = jax.vmap(rows)(x, places)
    for i in range(3):
        for ours, theirs in zip(jax.tree.leaves(batched), jax.tree.leaves(rows(x[i], places[i])), strict=True):
            np.testing.assert_array_equal(ours[i], theirs)


def test_results_have_the_tables_dtypes() -> None:
    """JAX would give i32 + f16 as f16, and a weak number as the other operand's dtype."""
    ctx: Any = JaxExecutionContext()
    half = jnp.ones(2, jnp.float16)
    assert ctx.ops.add(half, 2.5).dtype.name == "f16"
    assert ctx.ops.mean(jnp.ones(3, jnp.bfloat16)).dtype.name == "bf16"
    assert ctx.ops.sum(jnp.ones(3, jnp.int8)).dtype.name == "i8"
    assert ctx.ops.add(jnp.asarray(2.0), np.float32(1)).data.weak_type is False
    with pytest.raises(OpError, match=r"add: f64 has 64 bits, and JAX computes in 32 until its 64-bit types are on: c"):
        ctx.ops.add(jnp.ones(2, jnp.int32), jnp.ones(2, jnp.float16))
    with pytest.raises(OpError, match=r"bf16 and f16 promote to no dtype of the table: cast one of them"):
        ctx.ops.add(jnp.ones(2, jnp.bfloat16), half)
    with pytest.raises(OpError, match=r"an array of JAX, uint16\[2\], is no operand of ops: unknown dtype"):
        ctx.ops.negate(jnp.ones(2, jnp.uint16))


def test_64_bits_are_exact_or_refused() -> None:
    ctx: Any = JaxExecutionContext()
    large = np.array([2**40 + 1], np.int64)
    for call in (
        lambda: ctx.ops.add(large, large),
        lambda: ctx.constant(1.5, "f64"),
        lambda: ctx.ops.iota((3,), 0, "i64"),
    ):
        with pytest.raises(
            OpError, match=r"64 bits, and JAX computes in 32 .*: cast to (i|f)32, or call within jax.en"
        ):
            call()
    with jax.enable_x64(True):
        assert ctx.ops.add(large, large).numpy().tolist() == [2**41 + 2]


def test_bf16_is_rounded_by_every_op_inside_of_jit() -> None:
    """Two roundings: 1 + 2^-8 is 1 in bf16, and again 1 after the next one. XLA may not drop the first."""
    x, y = jnp.ones((), jnp.bfloat16), jnp.asarray(2.0**-8, jnp.bfloat16)

    def twice(x: Any, y: Any) -> Any:
        ctx: Any = JaxExecutionContext()
        return ctx.ops.add(ctx.ops.add(x, y), y).data

    assert float(jax.jit(twice)(x, y)) == 1.0


def test_a_traced_value_has_no_data() -> None:
    def escaping(x: Any) -> Any:
        ctx: Any = JaxExecutionContext()
        assert ctx.isRecording
        tensor = ctx.tensor(x)
        assert ctx.isRecording
        assert ctx.is_recording
        with pytest.raises(TraceEscapeError, match=r"numpy\(\) was asked of f32\[2\] while JAX traces it \(jit, grad"):
            tensor.numpy()
        return x

    jax.jit(escaping)(jnp.ones(2))
    ctx: Any = JaxExecutionContext()
    assert float(ctx.ops.sum(jnp.ones(2))) == 2.0
    assert not ctx.isRecording


def test_operands_of_other_contexts_are_refused() -> None:
    ctx: Any = JaxExecutionContext()
    with pytest.raises(OpError, match=r"negate: a JAX context takes its own tensors, arrays of JAX and NumPy, and num"):
        ctx.ops.negate(EagerExecutionContext().constant(1.0))
    ctx.module_path = "model.layers.1"
    with pytest.raises(OpError, match=r"reshape\(f32\[3\], shape=\(2,\)\): reshape_c1.* \(at model.layers.1\)"):
        ctx.ops.reshape(jnp.ones(3), (2,))
    with pytest.raises(GraphError, match=r"the op 'add' has a rule in run_jax already"):
        computes("add")(lambda x, y: x)


def test_parameters_are_arrays_by_path_in_the_models_dtype() -> None:
    arrays = _arrays()
    stored = MappingWeights({path: np.asarray(array) for path, array in arrays.items()})
    read = parameter_arrays(Affine("bf16"), stored)
    assert {path: str(array.dtype) for path, array in read.items()} == {"weight": "bfloat16", "bias": "bfloat16"}
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    placed = parameter_arrays(Affine(), stored, sharding=lambda path, spec: device if spec.ndim == 2 else None)
    assert placed["weight"].sharding == device
    x = np.ones((1, 3), np.float32)
    from_source = Affine()(JaxExecutionContext(stored), x)
    assert from_source.numpy().tolist() == jax_function(Affine())(arrays, x).tolist()
    cast = Affine("bf16")(JaxExecutionContext(arrays), x.astype(jnp.bfloat16))
    assert cast.dtype.name == "bf16", "f32 masters of a bf16 model are cast where they are read"


def test_parameters_that_do_not_fit_are_refused() -> None:
    x, arrays = np.ones((1, 3), np.float32), _arrays()
    with pytest.raises(CheckpointError, match=r"parameter 'weight': this context has no weights: pass parameters="):
        Affine()(JaxExecutionContext(), x)
    with pytest.raises(CheckpointError, match=r"'weight': not among the 1 arrays given; did you mean 'wieght'"):
        Affine()(JaxExecutionContext({"wieght": arrays["weight"]}), x)
    for wrong in (jnp.ones((3, 2)), jnp.ones((2, 3), jnp.int32)):
        with pytest.raises(CheckpointError, match=r"'weight': the model wants f32\[2,3\], the array given is "):
            Affine()(JaxExecutionContext({**arrays, "weight": wrong}), x)


def test_a_parameter_that_no_weights_have_gets_the_values_given() -> None:
    weight, values = Affine().weight, np.ones((2, 3), np.float32)
    for known in (None, {}, MappingWeights({})):
        assert JaxExecutionContext(known).parameter_or(weight, values).numpy().tolist() == values.tolist()
    for known in (_arrays(), MappingWeights({"weight": np.full((2, 3), 5, np.float32)})):
        ctx = JaxExecutionContext(known)
        np.testing.assert_array_equal(ctx.parameter_or(weight, values).numpy(), ctx.parameter(weight).numpy())
    ctx = JaxExecutionContext()
    with ctx.parameters_from({"weight": ctx.constant(values * 7)}):
        np.testing.assert_array_equal(ctx.parameter_or(weight, values).numpy(), values * 7)


def test_inputs_and_tags() -> None:
    seen: dict[str, JaxTensor] = {}
    ctx: Any = JaxExecutionContext(_arrays(), {"x": np.ones((1, 3), np.float32)}, seen.__setitem__)
    Affine()(ctx, ctx.ops.placeholder("x", (1, 3), "f32"))
    assert {name: tensor.shape for name, tensor in seen.items()} == {"y": (1, 2)}
    assert ctx.shows("y")
    with pytest.raises(OpError, match=r"placeholder 'y': a JAX context needs its array; inputs given: x"):
        ctx.ops.placeholder("y", (1, 3), "f32")
    with pytest.raises(OpError, match=r"placeholder 'x': wanted f32\[3\], found f32\[1,3\]"):
        ctx.ops.placeholder("x", (3,), "f32")


def test_the_gradient_of_a_largest_element_is_shared_among_equal_ones() -> None:
    x = jnp.array([[1.0, 3.0, 3.0], [2.0, -1.0, 2.0]])

    def weighted(op: str, x: Any, axes: Any) -> Any:
        ctx: Any = JaxExecutionContext()
        return jnp.sum(getattr(ctx.ops, op)(ctx.tensor(x), axes).data * jnp.array(2.0))

    assert jax.grad(weighted, 1)("max", x, 1).tolist() == [[0, 1, 1], [1, 0, 1]]
    assert jax.grad(weighted, 1)("max", x, None).tolist() == [[0, 1, 1], [0, 0, 0]]
    assert jax.grad(weighted, 1)("min", x, (0,)).tolist() == [[2, 0, 0], [0, 2, 2]]
    both = jax.grad(lambda a, b: arrays_of(JaxExecutionContext().ops.maximum(a, b)), (0, 1))
    assert [float(slope) for slope in both(1.0, 1.0)] == [0.5, 0.5]
    assert [float(slope) for slope in both(1.0, 2.0)] == [0, 1]


def test_what_is_rounded_to_integers_has_no_gradient() -> None:
    encoding = ENCODINGS["q8_0"]
    weight = encoding.pack(np.ones((2, 32), np.float32))

    def product(x: Any) -> Any:
        ctx: Any = JaxExecutionContext()
        return ctx.ops.sum(ctx.ops.packed_linear(ctx.tensor(x), ctx.tensor(weight), encoding, activations="q8")).data

    assert float(product(jnp.ones((1, 32)))) == pytest.approx(64, rel=1e-2)
    with pytest.raises(GraphError, match=r"block_quantize: products with packed weights round activations to int"):
        jax.grad(product)(jnp.ones((1, 32)))


_SHARDED = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from run_jax import jax_function

mesh = Mesh(np.array(jax.devices()[:2]), ("tp",))
x = np.arange(12, dtype=np.float32).reshape(2, 6)
w = np.arange(24, dtype=np.float32).reshape(4, 6)
product = jax_function(lambda ctx, x, w: ctx.ops.linear(x, w))
parts = jax.jit(jax.shard_map(
    lambda x, w: jax.lax.psum(product({}, x, w), "tp"), mesh=mesh, in_specs=(P(None, "tp"),) * 2, out_specs=P()
))(x, w)
np.testing.assert_array_equal(parts, x @ w.T)
split = jax.device_put(w, NamedSharding(mesh, P("tp", None)))  # by the compiler
result = jax.jit(product)({}, x, split)
np.testing.assert_array_equal(result, x @ w.T)
print(len(result.sharding.device_set), len(jax.devices()))
"""


def test_two_devices_share_the_work() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, **flags, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(
        [sys.executable, "-c", _SHARDED], env=environment, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == ["2", "2"]


def test_the_examples() -> None:
    for module in (run_jax, _function):
        results = doctest.testmod(module)
        assert results.attempted
        assert not results.failed


def test_an_update_that_is_computed_from_its_target_is_right():
    """JAX alone gives [1, 1, 1, 1] (openxla/xla#49176): XLA writes in place, and reads what it has written."""

    def plain(x: Any) -> Any:
        base = x + np.int32(1)
        return jax.lax.dynamic_update_slice(base, base[:3], (1, 0, 0)).reshape((1, 4, 1))

    def shifted(ctx: Any, x: Any) -> Any:
        base = ctx.ops.add(x, 1)
        update = ctx.ops.slice_axis(base, 0, 0, 3)
        return ctx.ops.reshape(ctx.ops.dynamic_update_slice(base, update, [1, 0, 0]), (1, 4, 1))

    x = np.arange(4, dtype=np.int32).reshape(4, 1, 1)
    assert jax.jit(plain)(x).ravel().tolist() == [1, 1, 1, 1], "the fault is gone: remove overlapping_update"
    assert jax.jit(partial(jax_function(shifted), {}))(x).ravel().tolist() == [1, 1, 2, 3]


def test_a_context_records_while_jax_traces_and_only_then() -> None:
    ctx = JaxExecutionContext()
    seen: list[bool] = []

    def function(x: Any) -> Any:
        seen.append(ctx.isRecording)  # before the first value
        seen.append(JaxExecutionContext().is_recording)
        y = ctx.ops.mul(x, x)
        seen.append(ctx.isRecording)
        return y.data.sum()

    for transformed in (jax.jit(function), jax.grad(function), lambda x: jax.vmap(function)(jnp.ones((2, 2)))):
        assert not ctx.isRecording
        transformed(jnp.float32(3.0))
        assert seen
        assert all(seen)
        assert not ctx.isRecording
        seen.clear()
    function(jnp.float32(3.0))
    assert not any(seen)


def test_a_context_records_in_the_thread_that_traces_alone() -> None:
    ctx, seen = JaxExecutionContext(), list[bool]()

    def function(x: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append(ctx.isRecording))
        thread.start()
        thread.join()
        seen.append(ctx.isRecording)
        return x

    jax.jit(function)(jnp.float32(3.0))
    assert seen == [False, True]


def test_the_functions_of_a_loop_are_traced() -> None:
    ctx, seen = JaxExecutionContext(), list[bool]()

    def body(x: Any) -> Any:
        seen.append(ctx.isRecording)
        return (ctx.ops.add(x, 1.0),)

    ctx.ops.while_loop(lambda x: ctx.ops.less(x, 3.0), body, (ctx.constant(0.0),))
    assert seen
    assert all(seen)
    assert not ctx.isRecording
