"""Decoders as flows are those of ``transformer_core.models``: parameters, text, results."""

from typing import Any

import numpy as np
import pytest

from tests.flow._support import eager, inputs_of, lowered, random_weights, recorded
from tests.goldens.cases import CASES
from transformer_core import RMSNorm
from transformer_core.flow import BuildContext, CompileProfile, FlowModel, ModelFlow
from transformer_core.flow import entry_points as flow_entry_points
from transformer_core.models import FAMILIES, DecoderConfig, DecoderLM, entry_points

# A Llama and its kin; a hybrid with Gated DeltaNets and experts; two RoPEs, windows and caps; no RoPE in some layers.
_ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen3NextForCausalLM",
    "SmolLM3ForCausalLM",
    "GraniteForCausalLM",
    "Gemma3ForCausalLM",
    "Phi3ForCausalLM",
)
_CASES = {case.config["architectures"][0]: case for case in CASES.values()}
_SIZES: Any = {"batch": 2, "max_sequence": 16}


def _flow(config: DecoderConfig) -> ModelFlow:
    """What ``DecoderLM`` is, stage by stage."""
    family = next(family for family in FAMILIES if family.architecture == config.architecture)

    def norm(build: BuildContext) -> RMSNorm:
        return RMSNorm(build.size, eps=config.norm_eps, zero_centred=config.zero_centred, dtype=build.dtype)

    decoder = (
        ModelFlow("decoder")
        .token_embed(config.vocabulary, config.hidden, scale=config.embedding_scale)
        .repeat_layers(config.layers, lambda build: family.layer(config, build.index, build.dtype))
    )
    return (
        ModelFlow("lm")
        .input("token_ids", ("B", "T"), "i32")
        .rope_tables(config.rope, config.windows, config.local_rope)
        .include("model", decoder)
        .last_token()
        .final_norm(norm, name="model.norm")
        .lm_head(tied=config.tied, bias=config.head_bias, scale=config.logits_scale, softcap=config.logits_softcap)
    )


def _models(recipe: ModelFlow, dtype: str = "f32") -> list[FlowModel]:
    sequences = {"training": 6, "prefill": 6, "decode": 1}
    return [
        recipe.build(CompileProfile.preset(preset, sequence=sequence, dtype=dtype, **_SIZES))
        for preset, sequence in sequences.items()
    ]


@pytest.mark.parametrize("architecture", _ARCHITECTURES)
def test_the_text_is_the_same_byte_for_byte(architecture: str):
    config = DecoderConfig.from_hf(_CASES[architecture].config)
    reference = DecoderLM(config)
    models = _models(_flow(config))
    points = entry_points(reference, names=("forward", "prefill", "decode"), sequence=6, **_SIZES)
    flows = flow_entry_points(models)
    assert [point.arguments for point in flows] == [point.arguments for point in points]
    expected = lowered(points)
    assert lowered(flows) == expected
    assert lowered(flows, streaming=True) == expected
    for model in models:
        own = {path: parameter.spec for path, parameter in model.named_parameters()}
        assert own == {path: parameter.spec for path, parameter in reference.named_parameters()}


def test_in_bf16_too():
    config = DecoderConfig.from_hf(_CASES["LlamaForCausalLM"].config)
    points = entry_points(DecoderLM(config, "bf16"), names=("forward", "prefill", "decode"), sequence=6, **_SIZES)
    text = lowered(flow_entry_points(_models(_flow(config), "bf16")))
    assert text == lowered(points)
    assert "bf16" in text


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen3NextForCausalLM"])
def test_results_are_the_same_eagerly_and_recorded(architecture: str):
    config = DecoderConfig.from_hf(_CASES[architecture].config)
    reference = DecoderLM(config)
    weights = random_weights(reference)
    points = entry_points(reference, names=("forward", "prefill", "decode"), sequence=6, **_SIZES)
    for point, flow in zip(points, flow_entry_points(_models(_flow(config))), strict=True):
        inputs = inputs_of(point)
        expected = eager(point, weights, inputs)
        found, again = eager(flow, weights, inputs), recorded(flow, weights, inputs)
        assert list(found) == list(expected) == list(again)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
            np.testing.assert_allclose(again[name], array, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("memory", ["taps", "bindings"])
def test_taps_and_bindings_are_streamed_too(memory: str):
    config = DecoderConfig.from_hf(_CASES["Qwen3NextForCausalLM"].config)
    model = _flow(config).build(CompileProfile(name="run", sequence=6, memory=memory, **_SIZES))  # type: ignore[arg-type]
    point = model.entry_point()
    text = lowered([point])
    assert lowered([point], streaming=True) == text
    inputs, weights = inputs_of(point), random_weights(model)
    expected, again = eager(point, weights, inputs), recorded(point, weights, inputs)
    assert [name for name in expected if name.endswith(".key")]
    for name, array in expected.items():
        np.testing.assert_allclose(again[name], array, rtol=1e-5, atol=1e-5)


def test_models_of_one_module_share_their_weights():
    config = DecoderConfig.from_hf(_CASES["LlamaForCausalLM"].config)
    recipe = _flow(config)
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
