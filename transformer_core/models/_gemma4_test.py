"""Configurations of Gemma 4: sizes by type of layer, shared caches, embeddings for every layer, experts."""

from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, OpError
from transformer_core.family._layer_configs import LayerSizes, PerLayerConfig
from transformer_core.layers._rope_config import RopeKind
from transformer_core.layers._rope_scaling import NoScaling, ProportionalScaling
from transformer_core.layers._weights_testing import RandomWeights
from transformer_core.models import DecoderConfig, DecoderLM
from transformer_core.models._config_testing import read

_S, _F = "sliding_attention", "full_attention"
_SIZES: Any = {"num_key_value_heads": 2, "head_dim": 8, "hidden_size_per_layer_input": 0}
_SHARED: Any = {**_SIZES, "num_hidden_layers": 4, "layer_types": [_S, _F, _S, _F]}


def gemma4(**changes: Any) -> DecoderConfig:
    return read("Gemma4", **{**_SIZES, **changes})


def test_defaults_are_transformers():
    config = gemma4(hidden_size_per_layer_input=None)
    assert config.windows == (512, 512, None)
    assert config.rope_kinds == (RopeKind.LOCAL, RopeKind.LOCAL, RopeKind.MODEL)
    assert [sizes.head_size for sizes in config.layer_sizes] == [8, 8, 512]
    assert (config.rope.base, config.rope.rotated, config.rope.scaling) == (1e6, 512, ProportionalScaling(0.25))
    assert config.local_rope is not None
    assert (config.local_rope.base, config.local_rope.rotated, config.local_rope.scaling) == (1e4, 8, NoScaling())
    assert (config.scale, config.tied, config.zero_centred, config.v_norm) == (1.0, True, False, True)
    assert config.per_layer == PerLayerConfig(vocabulary=262144, layers=3, size=256)
    assert (config.experts, config.logits_softcap, config.cache_owners) == (None, None, ())


@pytest.mark.parametrize("family", ["Gemma3n", "Gemma4", "Gemma4Unified", "Gemma3", "Olmo3"])
def test_layers_with_a_window_need_its_size(family: str):
    sizes: Any = {**_SIZES, "hidden_size_per_layer_input": 8} if family == "Gemma3n" else _SIZES
    with pytest.raises(
        ConfigError, match="'sliding_window': expected an integer of at least 1, for some layers are of"
    ):
        read(family, **sizes, layer_types=[_S, _F, _F], sliding_window="null")


def test_the_last_layer_looks_at_all_whatever_the_file_says():
    assert gemma4(layer_types=[_F, _S, _S], sliding_window=5).windows == (None, 5, None)


def test_layers_without_a_window_have_heads_of_their_own():
    hub = {"global_head_dim": 12, "num_global_key_value_heads": 1}
    plain = LayerSizes(kv_heads=2, head_size=8, intermediate=40)
    assert gemma4(**hub).layer_sizes[1:] == (plain, LayerSizes(kv_heads=2, head_size=12, intermediate=40))
    own = LayerSizes(kv_heads=1, head_size=12, intermediate=40, values_are_keys=True)
    assert gemma4(**hub, attention_k_eq_v=True).layer_sizes[1:] == (plain, own)
    listed = {"per_layer_config": {"2": {"head_dim": 12, "num_key_value_heads": 1}}, "global_head_dim": 99}
    assert gemma4(**listed, attention_k_eq_v=True).layer_sizes[1:] == (plain, own)
    assert gemma4(per_layer_config="null").layer_sizes == (plain,) * 3
    assert gemma4(**hub).facts()["layer_sizes"][2]["head_size"] == 12


def test_last_layers_share_caches_and_are_wider():
    config = gemma4(**_SHARED, num_kv_shared_layers=2, use_double_wide_mlp=True)
    assert config.cache_owners == (None, None, 0, 1)
    assert [sizes.intermediate for sizes in config.layer_sizes] == [40, 40, 80, 80]


def test_experts_stand_beside_the_feed_forward():
    config = gemma4(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=12)
    paths = [path for path, _ in DecoderLM(config).named_parameters()]
    assert "model.layers.0.mlp.gate_proj.weight" in paths
    assert "model.layers.0.experts.gate_proj" in paths


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": [_S, _F]}, r"'layer_types': expected a list of 3 \(num_hidden_layers\) of full_attention or"),
        ({"layer_types": [_S, "chunked_attention", _F]}, "'layer_types': expected a list of 3"),
        ({"num_kv_shared_layers": 3}, "'num_kv_shared_layers': expected a number of last layers with a layer of each"),
        ({"num_kv_shared_layers": 2}, "'num_kv_shared_layers': expected a number of last layers .* out of 3 layers"),
        ({"num_kv_shared_layers": -1}, "'num_kv_shared_layers': expected an integer of at least 0; found -1"),
        ({"num_kv_shared_layers": 9}, "'num_kv_shared_layers': expected a number of last layers"),
        ({"use_bidirectional_attention": "all"}, "'use_bidirectional_attention': expected one of vision; found 'all'"),
        ({"per_layer_config": {"3": {"head_dim": 4}}}, "'per_layer_config': expected fields num_key_value_heads and"),
        ({"per_layer_config": {"2": {"hidden_size": 4}}}, "by numbers of layers, 0 to 2, alike in each type"),
        ({"per_layer_config": {"1": {"head_dim": 4}}}, "'per_layer_config': expected .*, alike in each type"),
        ({"per_layer_config": {"2": [4]}}, "'per_layer_config': expected fields num_key_value_heads and head_dim"),
        ({"per_layer_config": {"2": {"head_dim": 0}}}, "per_layer_config: 2: field 'head_dim': expected an integer"),
        ({"per_layer_config": {"2": {"num_key_value_heads": 4}}}, r"divisors of num_attention_heads \(6\), and 4 is"),
        ({"global_head_dim": 7}, "RoPE turns pairs of dims: expected an even number of rotated dims; found 7"),
        ({"vocab_size_per_layer_input": 49, "hidden_size_per_layer_input": 4}, "expected an integer of at least 50"),
        ({"enable_moe_block": True}, "field 'num_experts' is missing"),
        ({"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 3}, "routing: exp"),
        ({"rope_parameters": {"full_attention": {}}}, "field 'sliding_attention' is missing: expected an object"),
        (
            {"rope_parameters": {_F: {}, _S: {"rope_type": "default", "partial_rotary_factor": 0.5}}},
            "Gemma4ForCausalLM rotates whole heads by one position",
        ),
    ],
)
def test_other_values_are_refused_by_name(changes: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        gemma4(**changes)


def test_a_model_of_first_layers_reads_their_part_of_the_table():
    """The first layer's result is the whole model's, although the table has rows for all layers."""
    config = gemma4(hidden_size_per_layer_input=4, vocab_size_per_layer_input=50, global_head_dim=6)
    whole, first = DecoderLM(config), DecoderLM(config, num_layers=1)
    weights, ids = RandomWeights(whole), np.array([[3, 1, 4, 1, 5]], np.int32)
    states: list[dict[str, np.ndarray]] = [{}, {}]
    for model, state in zip((whole, first), states, strict=True):
        model(
            EagerExecutionContext(weights, tag_sink=lambda name, x, state=state: state.update({name: x.numpy()})), ids
        )
    name = "model.layers.0.output"
    np.testing.assert_array_equal(states[0][name], states[1][name])
    shapes = [
        dict(model.named_parameters())["model.embed_tokens_per_layer.weight"].spec.shape for model in (whole, first)
    ]
    assert shapes == [(50, 12), (50, 12)]


def test_a_layer_without_its_embeddings_says_so():
    model = DecoderLM(gemma4(hidden_size_per_layer_input=4, vocab_size_per_layer_input=50))
    step: Any = None
    layer: Any = model.model.layers[0]
    layer.summed = lambda ctx, x, step, cache: (x, cache)
    with pytest.raises(
        OpError, match=r"layer 'model\.layers\.0': expected embeddings \[B, T, P\] besides x; found none"
    ):
        layer(EagerExecutionContext(RandomWeights(model)), EagerExecutionContext().ops.zeros((1, 1, 24), "f32"), step)


def test_the_unified_one_has_no_experts_and_no_embeddings_for_layers():
    config = read("Gemma4Unified", num_key_value_heads=2, head_dim=8, attention_k_eq_v=True)
    assert (config.architecture, config.windows) == ("Gemma4UnifiedForCausalLM", (1024, 1024, None))
    assert (config.per_layer, config.experts) == (None, None)
    assert [sizes.values_are_keys for sizes in config.layer_sizes] == [False, False, True]
