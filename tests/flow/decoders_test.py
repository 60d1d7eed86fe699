"""A decoder's recipe, built for a profile, is the decoder: parameters, text, results; and may be changed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compile_dag import record
from lang_core import ConfigError, EagerExecutionContext, EntryPoint, ExecutionContext, Module, Tensor, TraceEscapeError
from tests.flow._support import eager, inputs_of, lowered, random_weights, recorded
from tests.goldens.cases import CASES
from tests.goldens.samples import SAMPLE
from transformer_core import NEXT_IDS
from transformer_core.flow import CompileProfile, FlowModel, Maker, Memory, ModelFlow
from transformer_core.flow import entry_points as flow_entry_points
from transformer_core.models import DecoderConfig, DecoderLM, decoder_flow
from transformer_core.models import entry_points as all_results

_CASES = {case.config["architectures"][0]: case for case in CASES.values()}
_SIZES: Any = {"batch": 2, "max_sequence": 16}


def entry_points(model: DecoderLM, **sizes: Any) -> tuple[EntryPoint, ...]:
    """The model's, without the likeliest tokens, which they add to what its recipe gives."""
    return tuple(_recipes_results(point) for point in all_results(model, **sizes))


def _recipes_results(point: EntryPoint) -> EntryPoint:
    def run(ctx: ExecutionContext, *tensors: Tensor) -> dict[str, Tensor]:
        results = dict(point.fn(ctx, *tensors))
        assert (NEXT_IDS in results) == (point.name != "forward")
        return {name: tensor for name, tensor in results.items() if name != NEXT_IDS}

    return EntryPoint(point.name, run, point.arguments)


def _models(recipe: ModelFlow, dtype: str = "f32", positions: str = "shared") -> list[FlowModel]:
    sequences = {"training": 6, "prefill": 6, "decode": 1}
    return [
        recipe.build(CompileProfile.preset(preset, sequence=sequence, dtype=dtype, positions=positions, **_SIZES))
        for preset, sequence in sequences.items()
    ]


# One architecture of each structure of layers; with TAPELINE_LONG=1 in the environment all.
_SAMPLED = {case.config["architectures"][0] for case in SAMPLE.values()}


@pytest.mark.parametrize("architecture", [name for name in _CASES if name in _SAMPLED])
def test_the_text_is_the_same_byte_for_byte(architecture: str):
    config = DecoderConfig.from_hf(_CASES[architecture].config)
    reference = DecoderLM(config)
    models = _models(decoder_flow(config))
    points = entry_points(reference, names=("forward", "prefill", "decode"), sequence=6, **_SIZES)
    flows = flow_entry_points(models)
    assert [point.arguments for point in flows] == [point.arguments for point in points]
    assert lowered(flows, streaming=True) == lowered(points)
    for model in models:
        own = {path: parameter.spec for path, parameter in model.named_parameters()}
        assert own == {path: parameter.spec for path, parameter in reference.named_parameters()}


@pytest.mark.parametrize("architecture", ["Qwen3NextForCausalLM", "Gemma3ForCausalLM", "Phi3ForCausalLM"])
def test_with_positions_of_each_sequence_too(architecture: str):
    config = DecoderConfig.from_hf(_CASES[architecture].config)
    names = ("forward", "prefill", "decode")
    points = entry_points(DecoderLM(config), names=names, sequence=6, positions="per_row", **_SIZES)
    flows = flow_entry_points(_models(decoder_flow(config), positions="per_row"))
    assert [point.arguments for point in flows] == [point.arguments for point in points]
    assert lowered(flows, streaming=True) == lowered(points)


def test_in_bf16_too():
    config = DecoderConfig.from_hf(_CASES["LlamaForCausalLM"].config)
    points = entry_points(DecoderLM(config, "bf16"), names=("forward", "prefill", "decode"), sequence=6, **_SIZES)
    text = lowered(flow_entry_points(_models(decoder_flow(config), "bf16")))
    assert text == lowered(points)
    assert "bf16" in text


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3NextForCausalLM"])
def test_results_are_the_same_eagerly_and_recorded(architecture: str):
    config = DecoderConfig.from_hf(_CASES[architecture].config)
    reference = DecoderLM(config)
    weights = random_weights(reference)
    points = entry_points(reference, names=("forward", "prefill", "decode"), sequence=6, **_SIZES)
    for point, flow in zip(points, flow_entry_points(_models(decoder_flow(config))), strict=True):
        inputs = inputs_of(point)
        expected = eager(point, weights, inputs)
        results, again = eager(flow, weights, inputs), recorded(flow, weights, inputs)
        assert list(results) == list(expected) == list(again)
        for name, array in expected.items():
            np.testing.assert_array_equal(results[name], array)
            np.testing.assert_allclose(again[name], array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("memory", ["taps", "bindings"])
def test_taps_and_bindings_are_streamed_too(memory: str):
    config = DecoderConfig.from_hf(_CASES["Qwen3NextForCausalLM"].config)
    model = decoder_flow(config).build(CompileProfile(name="run", sequence=6, memory=memory, **_SIZES))  # type: ignore[arg-type]
    point = model.entry_point()
    text = lowered([point])
    assert lowered([point], streaming=True) == text
    inputs, weights = inputs_of(point), random_weights(model)
    expected, again = eager(point, weights, inputs), recorded(point, weights, inputs)
    assert [name for name in expected if name.endswith(".key")]
    for name, array in expected.items():
        np.testing.assert_allclose(again[name], array, rtol=1e-5, atol=1e-5)


def test_queries_that_grow_with_positions_need_to_know_them():
    config = DecoderConfig.from_hf(_CASES["Ministral3ForCausalLM"].config)
    model = decoder_flow(config).build(CompileProfile(name="run", sequence=6, memory=Memory.BINDINGS, **_SIZES))
    with pytest.raises(ConfigError, match="the caller has made tables of them"):
        lowered([model.entry_point()])


def test_models_of_one_module_share_their_weights():
    config = DecoderConfig.from_hf(_CASES["LlamaForCausalLM"].config)
    recipe = decoder_flow(config)
    first, second = (
        recipe.build(CompileProfile.preset(preset, sequence=1, dtype=dtype, **_SIZES))
        for preset, dtype in (("prefill", "f32"), ("decode", "bf16"))
    )
    with pytest.raises(
        Exception, match=r"prefill has f32\[.*\], decode bf16\[.*\]: entry points share weights, so their"
    ):
        flow_entry_points([first, second])
    with pytest.raises(Exception, match="entry points: expected at least one, each once; found prefill, prefill"):
        flow_entry_points([first, first])


def test_arrays_do_not_enter_a_recording_unseen():
    config = DecoderConfig.from_hf(_CASES["LlamaForCausalLM"].config)
    ids = np.zeros((2, 6), np.int32)
    model = _models(decoder_flow(config))[0]
    for fn in (model, DecoderLM(config)):
        with pytest.raises(TraceEscapeError, match="argument 'token_ids': a ndarray reached a recorded flow: make it"):
            record(lambda ctx, fn=fn: fn(ctx, ids))


def test_the_recipe_of_any_family_can_be_changed():
    config = DecoderConfig.from_hf(_CASES["Gemma2ForCausalLM"].config)
    profile = CompileProfile.preset("training", sequence=6)

    def first_only(make: Maker) -> Maker:
        return lambda build: make(build) if build.index == 0 else Identity()

    recipe = decoder_flow(config).patch("model.layers", wrap=first_only).without("lm_head").result("hidden")
    model, ids = recipe.build(profile), np.array([[3, 1, 4, 1, 5, 2]], np.int32)
    states: dict[str, np.ndarray] = {}
    whole = DecoderLM(config)
    weights = random_weights(whole)
    whole(EagerExecutionContext(weights, tag_sink=lambda name, x: states.update({name: x.numpy()})), ids)
    results: dict[str, np.ndarray] = {}
    model(EagerExecutionContext(weights, tag_sink=lambda name, x: results.update({name: x.numpy()})), ids)
    np.testing.assert_array_equal(results["model.layers.0.output"], states["model.layers.0.output"])
    assert not any(".layers.1." in name for name in results)
    assert model.trace().results["hidden"].shape == (1, 6, config.hidden)


class Identity(Module):
    """Gives what it takes."""

    def forward(self, ctx: Any, x: Any) -> Any:
        return x


@pytest.mark.parametrize("memory", ["taps", "caches", "bindings"])
def test_layers_that_read_another_layers_keys_and_values_keep_none(memory: str):
    config = replace(DecoderConfig.from_hf(CASES["llama_gqa"].config), cache_owners=(None, 0))
    assert config.layers == 2
    recipe, weights = decoder_flow(config), random_weights(DecoderLM(config))
    model = recipe.build(CompileProfile(name="run", sequence=6, memory=memory, **_SIZES))  # type: ignore[arg-type]
    inputs = inputs_of(model.entry_point())
    results = eager(model.entry_point(), weights, inputs)
    kept = {name.rpartition(".")[0] for name in results if name != "logits"}
    assert kept == {"layers.0"}
    if memory == "taps":
        whole = recipe.build(CompileProfile.preset("training", sequence=6, **_SIZES)).entry_point()
        np.testing.assert_array_equal(results["logits"], eager(whole, weights, inputs)["logits"])
