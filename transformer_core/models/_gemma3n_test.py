"""Configurations of Gemma 3n: alternating updates, sizes and sparsities per layer, shared caches."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.family._altup_layer import AltUpLayer
from transformer_core.family._layer_configs import AltUpConfig, PerLayerConfig
from transformer_core.models import DecoderConfig, DecoderLM
from transformer_core.models._config_testing import read

_S, _F = "sliding_attention", "full_attention"
_SIZES: Any = {"num_key_value_heads": 2, "head_dim": 8, "num_kv_shared_layers": 0}


def gemma3n(**changes: Any) -> DecoderConfig:
    return read("Gemma3n", **{**_SIZES, **changes})


def test_defaults_are_transformers():
    config = gemma3n(num_hidden_layers=12)
    assert config.windows == (512, 512, 512, 512, None, 512, 512, 512, 512, None, 512, 512)
    assert (config.rope.base, config.tied, config.scale, config.logits_softcap) == (1e6, True, 1.0, 30.0)
    assert config.local_rope is not None
    assert (config.local_rope.base, config.zero_centred, config.v_norm) == (1e4, False, True)
    assert config.altup == AltUpConfig(
        copies=4, active=0, scaled=True, laurel_rank=64, sparsities=(*[0.95] * 10, 0.0, 0.0)
    )
    assert config.per_layer == PerLayerConfig(vocabulary=262144, layers=12, size=256)
    few = gemma3n().altup
    assert few is not None
    assert few.sparsities == (0.0,) * 3


def test_fifteen_layers_share_caches_unless_the_file_says_otherwise():
    owners = gemma3n(num_hidden_layers=20, num_kv_shared_layers=None).cache_owners
    assert owners == (*[None] * 5, *([3] * 4 + [4]) * 3)
    paths = {
        path for path, _ in DecoderLM(gemma3n(layer_types=[_S, _F, _S], num_kv_shared_layers=1)).named_parameters()
    }
    assert "model.layers.2.self_attn.q_norm.weight" in paths
    assert not {f"model.layers.2.self_attn.{name}.weight" for name in ("k_proj", "v_proj", "k_norm")} & paths


def test_layers_may_have_sizes_of_their_own():
    config = gemma3n(intermediate_size=[40, 20, 30])
    assert [sizes.intermediate for sizes in config.layer_sizes] == [40, 20, 30]
    assert config.intermediate == 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intermediate_size": [40, 20]}, r"'intermediate_size': expected a list of 3 \(num_hidden_layers\) integers"),
        ({"intermediate_size": [40, 20, 0]}, "'intermediate_size': expected a list of 3"),
        ({"intermediate_size": "wide"}, "'intermediate_size': expected a list of 3"),
        ({"intermediate_size": 0}, "'intermediate_size': expected an integer of at least 1; found 0"),
        ({"activation_sparsity_pattern": 0.5}, "'activation_sparsity_pattern': expected a list of 3"),
        ({"activation_sparsity_pattern": [0.5, 0.5]}, "'activation_sparsity_pattern': expected a list of 3"),
        ({"activation_sparsity_pattern": [0.5, 1.0, 0]}, "of 3 .*numbers of 0 or more, below 1; found"),
        ({"activation_sparsity_pattern": [0.5, "half", 0]}, "'activation_sparsity_pattern': expected a list of 3"),
        ({"altup_active_idx": 4}, r"'altup_active_idx': expected 0 to 3, one of altup_num_inputs \(4\); found 4"),
        ({"altup_num_inputs": 0}, "'altup_num_inputs': expected an integer of at least 1; found 0"),
        ({"hidden_size_per_layer_input": 0}, "'hidden_size_per_layer_input': expected an integer of at least 1"),
        ({"layer_types": [_S, _F]}, r"'layer_types': expected a list of 3 \(num_hidden_layers\) of full_attention or"),
        ({"num_kv_shared_layers": None}, "'num_kv_shared_layers': expected a number of last layers .* out of 3 layers"),
        ({"num_kv_shared_layers": 1, "layer_types": [_S, _S, _F]}, "'num_kv_shared_layers': expected a number of last"),
        ({"use_bidirectional_attention": True}, "'use_bidirectional_attention': expected false or null"),
    ],
)
def test_other_values_are_refused_by_name(changes: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        gemma3n(**changes)


def test_a_layer_needs_both_configurations():
    with pytest.raises(ConfigError, match="expected a configuration with altup and per_layer"):
        AltUpLayer(read(num_key_value_heads=2), 0, DecoderLM(read(num_key_value_heads=2)).dtype)
