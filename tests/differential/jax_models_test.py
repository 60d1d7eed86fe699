"""Whole models inside of JAX's transformations: results are transformers' and NumPy's, gradients are verified."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autotune import Executor, Invocation, Kernel, find_labels_in_lowered, using_kernels
from autotune.supplied import composite_kernels
from compile_dag.gradient import value_and_gradient
from lang_core import EagerExecutionContext, Module, WeightSource
from run_jax import jax_function, parameter_arrays
from tests.differential._jax import QUICKLY
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import read_encoder_golden, write_encoder_checkpoint
from tests.goldens.golden_files import read_golden
from tests.goldens.weights import write_checkpoint
from tests.parity._golden_encoders import forward_of
from tests.parity._golden_models import empty_caches, prefill_and_decode, relative_error, scalar
from transformer_core.checkpoints import SafetensorsCheckpoint
from transformer_core.models import DecoderLM, load_config, load_model, weights_of
from transformer_core.training import cross_entropy

# Relative to the largest logit: transformers' results, and those of NumPy's context.
_TOLERANCE: Final = 2e-4
_BESIDE_NUMPY: Final = 2e-5
# TAPELINE_LONG=1 in the environment asks for every golden model.
_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_DECODERS: Final = tuple(CASES) if _LONG else ("llama_gqa", "gemma3", "deepseek_v3", "qwen3_next", "gpt2")
_ENCODERS: Final = tuple(ENCODER_CASES) if _LONG else (next(iter(ENCODER_CASES)),)


@contextmanager
def opened(case: GoldenCase, directory: Path, dtype: str = "f32") -> Iterator[tuple[DecoderLM, WeightSource]]:
    """The case's model with its weights."""
    write_checkpoint(directory, case)
    with SafetensorsCheckpoint(directory) as checkpoint:
        model = DecoderLM(load_config(directory), dtype)
        yield model, weights_of(model, checkpoint)


def _jitted(fn: Any) -> Any:
    return jax.jit(jax_function(fn), compiler_options=QUICKLY)


@pytest.mark.parametrize("name", _DECODERS)
def test_decoders_under_jit(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    prompt: Any = golden.prompt.astype(np.int32)
    with opened(CASES[name], tmp_path) as (model, weights):
        logits = _jitted(model)(parameter_arrays(model, weights), prompt)
        beside = model(EagerExecutionContext(weights), prompt)
    assert relative_error(logits, golden.prompt_logits) < _TOLERANCE
    assert relative_error(logits, beside.numpy()) < _BESIDE_NUMPY


@pytest.mark.parametrize("name", _ENCODERS)
def test_encoders_under_jit(name: str, tmp_path: Path) -> None:
    golden = read_encoder_golden(name)
    write_encoder_checkpoint(tmp_path, ENCODER_CASES[name])
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        model = load_model(tmp_path)
        weights = weights_of(model, checkpoint)
        point = forward_of(model, golden.inputs)
        results = _jitted(point)(parameter_arrays(model, weights), *golden.inputs.values())
        ctx = EagerExecutionContext(weights)
        beside = point(ctx, *map(ctx.constant, golden.inputs.values()))
    assert set(results) == set(beside)
    for key, array in results.items():
        assert relative_error(array, golden.outputs[key]) < _TOLERANCE, key
        assert relative_error(array, beside[key].numpy()) < _BESIDE_NUMPY, key


def test_prefill_and_decode_under_jit_give_transformers_tokens(tmp_path: Path) -> None:
    case, golden = CASES["llama_gqa"], read_golden("llama_gqa")
    with opened(case, tmp_path) as (model, weights):
        parameters = parameter_arrays(model, weights)
        prefill, decode = prefill_and_decode(model, case)
        step, length = _jitted(decode), golden.prompt.shape[1]
        tokens = golden.prompt.astype(np.int32)
        results = _jitted(prefill)(parameters, tokens, scalar(0), scalar(length - 1), *empty_caches(prefill))
        results = dict(results)
        for number in range(case.steps):
            assert relative_error(results.pop("logits"), golden.logits[:, number]) < _TOLERANCE
            tokens = results.pop("next_ids")[:, None]
            np.testing.assert_array_equal(tokens[:, 0], golden.tokens[:, number])
            caches = [results[a.alias_result] for a in decode.arguments if a.alias_result]
            results = dict(step(parameters, tokens, scalar(length + number), *caches))


class _Last:
    """Chooses what is least like the heuristic: the last candidate."""

    def choose(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Any:
        """A configuration."""
        return list(kernel.candidate_cfgs(inv))[-1]


@pytest.mark.parametrize("name", ["llama_gqa", "qwen3_next"])
def test_supplied_kernels_in_place_of_composites_under_jit(name: str, tmp_path: Path) -> None:
    golden = read_golden(name)
    with opened(CASES[name], tmp_path) as (model, weights):

        def with_kernels(ctx: Any, ids: Any) -> Any:
            with using_kernels(ctx, composite_kernels(), Executor(_Last())):
                return model(ctx, ids)

        lowered = jax.jit(jax_function(with_kernels)).lower(parameter_arrays(model, weights), np.int32(golden.prompt))
        logits = lowered.compile(compiler_options=QUICKLY)(parameter_arrays(model, weights), np.int32(golden.prompt))
    assert relative_error(logits, golden.prompt_logits) < _TOLERANCE
    kernels = {label.partition("#")[2].partition("@")[0] for label in find_labels_in_lowered(lowered)}
    assert kernels >= {"linear", "rms_norm", "grouped_attention", "rope"}


_SHARDED: Final = """
import pathlib, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from run_jax import jax_function, parameter_arrays
from tests.differential.jax_models_test import opened
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.parity._golden_models import relative_error

mesh, golden = Mesh(np.array(jax.devices()), ("tp",)), read_golden("llama_gqa")
with opened(CASES["llama_gqa"], pathlib.Path(sys.argv[1])) as (model, weights):
    split = lambda path, spec: NamedSharding(mesh, P("tp") if spec.ndim == 2 and spec.shape[0] % 2 == 0 else P())
    parameters = parameter_arrays(model, weights, split)
    logits = jax.jit(jax_function(model))(parameters, golden.prompt.astype(np.int32))
assert relative_error(logits, golden.prompt_logits) < 2e-4
print(len(mesh.devices), sum(not array.sharding.is_fully_replicated for array in parameters.values()) > 10)
"""


def test_devices_share_a_model_by_the_shardings_of_its_weights(tmp_path: Path) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    environment = {**os.environ, **flags, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _SHARDED, str(tmp_path)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (child.returncode, child.stdout) == (0, "2 True\n"), child.stderr


def _loss_of(model: Module) -> Any:
    return lambda ctx, ids, labels: cross_entropy(ctx, model(ctx, ids), labels)


def _batch(case: GoldenCase) -> tuple[Any, Any]:
    ids = np.array(case.prompt, np.int32)[:1, :6]
    return ids, np.roll(ids, -1, 1)


@pytest.mark.parametrize("name", ["llama_gqa", "gemma2"] if _LONG else ["gemma2"])
def test_gradients_of_all_weights_are_those_of_compile_dag(name: str, tmp_path: Path) -> None:
    """Reverse mode of another hand: recorded, and written in ops."""
    ids, labels = _batch(CASES[name])
    with opened(CASES[name], tmp_path) as (model, weights):
        loss, parameters = _loss_of(model), parameter_arrays(model, weights)
        value, slopes = jax.jit(jax.value_and_grad(jax_function(loss)))(parameters, ids, labels)
        ctx = EagerExecutionContext(weights)
        wanted, truth = value_and_gradient(loss, list(parameters))(ctx, ctx.constant(ids), ctx.constant(labels))
    assert float(value) == pytest.approx(float(wanted), rel=1e-5)
    for path, slope in zip(parameters, truth, strict=True):
        room = 2e-5 * max(np.abs(slope.numpy()).max(), 1e-3)
        np.testing.assert_allclose(slopes[path], slope.numpy(), rtol=0, atol=room, err_msg=path)


def test_gradients_go_through_experts_and_linear_attention(tmp_path: Path) -> None:
    """A step along a random direction changes the loss as the gradient says: central difference, logits are f32."""
    case = CASES["qwen3_next"]
    ids, labels = _batch(case)
    with jax.enable_x64(True), opened(case, tmp_path, "f64") as (model, weights):
        loss, parameters = jax_function(_loss_of(model)), parameter_arrays(model, weights)
        assert any("experts" in path for path in parameters)
        random = np.random.default_rng(5)
        direction = {path: jnp.asarray(random.standard_normal(x.shape)) for path, x in parameters.items()}

        def along(step: Any, parameters: Any) -> Any:
            return loss({path: x + step * direction[path] for path, x in parameters.items()}, ids, labels)

        def slope_along(step: Any, parameters: Any) -> Any:
            value, gradient = jax.value_and_grad(along, argnums=1)(step, parameters)
            return value, sum(jnp.vdot(gradient[path], direction[path]) for path in parameters)

        run = jax.jit(slope_along, compiler_options=QUICKLY)
        (_, slope), (above, _), (below, _) = (map(float, run(step, parameters)) for step in (0.0, 1e-5, -1e-5))
    assert slope == pytest.approx((above - below) / 2e-5, rel=2e-3)
    assert abs(slope) > 1e-3
