"""Models that run kernels in place of composites give transformers' logits, whatever is chosen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import (
    ConfigSelectorChain,
    Executor,
    Invocation,
    Kernel,
    forget_invocations,
    profile,
    read_record,
    using_kernels,
)
from autotune.supplied import composite_kernels
from compile_dag import evaluate, record
from compile_dag.gradient import value_and_gradient
from lang_core import EagerExecutionContext
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.golden_files import read_golden
from tests.goldens.samples import SAMPLE
from tests.parity._golden_models import empty_caches, opened, prefill_and_decode, relative_error, scalar

_TOLERANCE = 2e-4


class Last:
    """Chooses what is least like the heuristic: the last candidate."""

    def choose(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Any:
        """A configuration."""
        return list(kernel.candidate_cfgs(inv))[-1]


@pytest.mark.parametrize("case", SAMPLE.values(), ids=SAMPLE)
def test_every_golden_with_the_last_candidate_of_every_kernel(case: GoldenCase, tmp_path: Path) -> None:
    golden = read_golden(case.name)
    prompt: Any = golden.prompt.astype(np.int32)
    with opened(case, tmp_path) as (model, ctx):
        with using_kernels(ctx, composite_kernels(), Executor(Last())), profile() as calls:
            actual = model(ctx, prompt)
        assert relative_error(actual, golden.prompt_logits) < _TOLERANCE
        assert {call.label.partition("#")[2].partition("@")[0] for call in calls} >= {"linear"}
        with profile() as calls:
            model(ctx, prompt)
        assert not calls, "outside of the block nothing is replaced"


@pytest.mark.parametrize("name", ["llama_gqa", "qwen3_next", "gemma2"])
def test_recorded_kernels_give_the_bits_of_eager_ones(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    prompt = np.array(case.prompt, np.int32)
    with opened(case, tmp_path) as (model, ctx):
        prefill, _ = prefill_and_decode(model, case)
        inputs: list[Any] = [prompt, scalar(0), scalar(prompt.shape[1] - 1), *empty_caches(prefill)]
        with using_kernels(ctx, composite_kernels(), Executor(Last())):
            eager = prefill(ctx, *inputs)

        def recorded(inner: Any, *tensors: Any) -> Any:
            with using_kernels(inner, composite_kernels(), Executor(Last())):
                return prefill.fn(inner, *tensors)

        names = [argument.name for argument in prefill.arguments]
        graph = record(recorded, *[a.spec for a in prefill.arguments], input_names=names)
        named = {name: ctx.ops.constant(value) for name, value in zip(names, inputs, strict=True)}
        actual = evaluate(graph, ctx, named)
    assert list(actual) == list(eager)
    for name in eager:
        np.testing.assert_allclose(actual[name].numpy(), eager[name].numpy(), rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["llama_gqa", "gemma3"])
def test_gradients_through_kernels_are_the_models(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    prompt: Any = np.resize(np.array(case.prompt, np.int32), (1, 7))
    with opened(case, tmp_path) as (model, ctx):
        weights = [path for path, _ in model.named_parameters() if "layers.0" in path]

        def loss(inner: Any, ids: Any, *, kernels: bool) -> Any:
            def mean(inner: Any) -> Any:
                return inner.ops.mean(inner.ops.mul(x := model(inner, ids), x))

            if not kernels:
                return mean(inner)
            with using_kernels(inner, composite_kernels(), Executor(Last())):
                return mean(inner)

        def gradients(kernels: bool) -> list[np.ndarray]:
            def step(inner: Any, ids: Any) -> Any:
                run = value_and_gradient(lambda c, ids: loss(c, ids, kernels=kernels), wrt=weights)
                value, actual = run(inner, ids)
                return [value, *actual]

            graph = record(step, ctx.ops.constant(prompt).spec)
            return [tensor.numpy() for tensor in evaluate(graph, ctx, {"ids": ctx.ops.constant(prompt)}).values()]

        plain, actual = gradients(False), gradients(True)
    for path, ours, theirs in zip(["loss", *weights], actual, plain, strict=True):
        assert np.abs(theirs).max() > 0, path
        assert relative_error(ours, theirs) < 1e-3, path


def test_the_gradient_of_the_delta_rule_is_its_rules_with_a_kernel_too() -> None:
    random = np.random.default_rng(0)
    shapes = ((1, 40, 4, 3), (1, 40, 2, 3), (1, 40, 2, 5), (1, 40, 2), (1, 40, 2))
    arrays: list[Any] = [random.standard_normal(shape).astype(np.float32) / 2 for shape in shapes]
    arrays[3], arrays[4] = -np.abs(arrays[3]), np.abs(arrays[4])
    ctx = EagerExecutionContext()

    def computed(kernels: bool) -> list[np.ndarray]:
        def loss(inner: Any, *inputs: Any) -> Any:
            with using_kernels(inner, composite_kernels() if kernels else {}, Executor(Last())):
                o, state = inner.ops.gated_delta_rule(*inputs)
            return inner.ops.add(inner.ops.sum(inner.ops.mul(o, o)), inner.ops.sum(state))

        def step(inner: Any, *inputs: Any) -> Any:
            value, gradients = value_and_gradient(loss, wrt=range(5))(inner, *inputs)
            return [value, *gradients]

        graph = record(step, *[ctx.ops.constant(array).spec for array in arrays], input_names=list("qkvgb"))
        return [
            tensor.numpy()
            for tensor in evaluate(graph, ctx, dict(zip("qkvgb", map(ctx.constant, arrays), strict=True))).values()
        ]

    for ours, theirs in zip(computed(True), computed(False), strict=True):
        assert np.abs(theirs).max() > 0
        assert relative_error(ours, theirs) < 1e-4


def test_an_eager_run_notes_its_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_file = tmp_path / "calls.jsonl"
    monkeypatch.setenv("TAPELINE_OPS_RECORD_FILE", str(record_file))
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    forget_invocations()
    case = CASES["qwen3_next"]
    prompt: Any = np.resize(np.array(case.prompt, np.int32), (1, 40))
    with opened(case, tmp_path) as (model, ctx):
        executor = Executor(ConfigSelectorChain(policy="heuristics"))
        with using_kernels(ctx, composite_kernels(), executor):
            model(ctx, prompt)
    calls = list(read_record(record_file))
    assert {call.op_id for call in calls} == {
        "gated_delta_rule", "grouped_attention", "linear", "rms_norm", "rope", "softmax"
    }  # fmt: skip
    assert all(call.key.device.startswith("numpy|cpu|") for call in calls)
    assert isinstance(ctx, EagerExecutionContext)
