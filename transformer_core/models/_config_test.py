import json
from dataclasses import replace

import numpy as np
import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.family import _registry
from transformer_core.family._config import (
    DecoderConfig,
    Family,
    family_of,
    load_config,
)
from transformer_core.family._decoder import DecoderLM
from transformer_core.family._fields import llama_kind
from transformer_core.family._registry import architectures, register
from transformer_core.layers._rope_scaling import YarnScaling
from transformer_core.layers._weights_testing import context_of
from transformer_core.models._config_testing import MINIMAL, read
from transformer_core.models.families import FAMILIES


def test_the_smallest_llama():
    config = read()
    assert (config.vocabulary, config.hidden, config.intermediate, config.layers) == (50, 24, 40, 3)
    assert (config.heads, config.kv_heads, config.head_size) == (6, 6, 4)
    assert config.windows == (None, None, None)
    assert not any((config.tied, config.qkv_bias, config.output_bias, config.mlp_bias, config.qk_norm))
    assert config.norm_eps == 1e-6
    assert config.rope.base == 10000.0
    assert config.eos_token_ids == ()
    assert config.bos_token_id is None


def test_llamas_biases():
    config = read(attention_bias=True)
    assert (config.qkv_bias, config.output_bias, config.mlp_bias) == (True, True, False)
    assert read(mlp_bias=True).mlp_bias


def test_families():
    qwen2 = read("Qwen2", num_key_value_heads=3)
    assert (qwen2.qkv_bias, qwen2.output_bias, qwen2.qk_norm) == (True, False, False)
    qwen3 = read("Qwen3", num_key_value_heads=3, head_dim=10, attention_bias=True)
    assert (qwen3.qkv_bias, qwen3.output_bias, qwen3.qk_norm, qwen3.head_size) == (True, True, True, 10)


def test_tokens():
    assert read(eos_token_id=2, bos_token_id=0).eos_token_ids == (2,)
    assert read(eos_token_id=[2, 5]).eos_token_ids == (2, 5)
    assert read(bos_token_id=0).bos_token_id == 0


def test_architecture_from_the_model_type():
    assert read(architectures=None, model_type="llama").architecture == "LlamaForCausalLM"


def test_a_quantised_model_is_read_where_no_weight_is():
    values = {**MINIMAL, "quantization_config": {"bits": 4}}
    assert DecoderConfig.from_hf(values, weights=False).layers == 3


def test_a_family_is_registered_once():
    family = Family("LlamaForCausalLM", "other", FAMILIES[0].read, FAMILIES[0].layer)
    with pytest.raises(
        ConfigError, match=r"family LlamaForCausalLM \(other\): LlamaForCausalLM \(llama\) is registered"
    ):
        register(family)
    assert len(set(architectures())) == len(architectures())
    assert {family.architecture for family in FAMILIES} <= set(architectures())


def test_a_package_of_ones_own_may_add_a_family(monkeypatch):
    def read_fields(fields: ConfigFields) -> DecoderConfig:
        return llama_kind(fields, "OwnForCausalLM", mlp_bias=True)

    monkeypatch.setattr(_registry, "_FAMILIES", dict(_registry._FAMILIES))
    register(Family("OwnForCausalLM", "own", read_fields, FAMILIES[0].layer))
    config = read("Own", num_key_value_heads=2)
    model = DecoderLM(config)
    assert model(context_of(model), np.array([[1, 2, 3]], np.int32)).shape == (1, 3, 50)
    assert "model.layers.2.mlp.up_proj.bias" in dict(model.named_parameters())


def test_a_configuration_of_no_family_is_refused():
    with pytest.raises(
        ConfigError, match=r"'MixtralForCasualLM' is not supported; did you mean 'Mixtral.*; docs/models.md lists"
    ):
        family_of(replace(read(), architecture="MixtralForCasualLM"))


def test_null_heads_take_the_families_rule():
    config = read(head_dim="null", num_key_value_heads="null")
    assert (config.kv_heads, config.head_size) == (6, 4)


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("Llama", {"sliding_window": 8}, (None,) * 3),
        ("Mistral", {"sliding_window": 8}, (8,) * 3),
        ("Mistral", {}, (4096,) * 3),
        ("Mistral", {"sliding_window": "null"}, (None,) * 3),
        ("Qwen2", {"sliding_window": 8}, (None,) * 3),
        ("Qwen2", {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}, (None, 8, 8)),
        ("Qwen2", {"sliding_window": 8, "use_sliding_window": True}, (None,) * 3),
        ("Qwen2", {"sliding_window": "null", "use_sliding_window": True, "max_window_layers": 0}, (None,) * 3),
        (
            "Qwen2",
            {
                "sliding_window": 8,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            (8, None, 8),
        ),
    ],
)
def test_windows(architecture, changes, windows):
    assert read(architecture, num_key_value_heads=2, **changes).windows == windows


@pytest.mark.parametrize("name", sorted(set(MINIMAL) - {"architectures"}))
def test_a_missing_field_is_named(name):
    rest = {field: value for field, value in MINIMAL.items() if field != name}
    with pytest.raises(ConfigError, match=f"^dir/config.json: field '{name}' is missing: expected a"):
        DecoderConfig.from_hf(rest, "dir/config.json")


@pytest.mark.parametrize("name", sorted(set(MINIMAL) - {"architectures"}))
@pytest.mark.parametrize("value", ["24", -1, [3], True, {}])
def test_a_field_of_a_wrong_kind_is_named(name, value):
    with pytest.raises(ConfigError, match=f"^dir/config.json: field '{name}': expected .*; found "):
        read(**{name: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_key_value_heads": 4},
            r"'num_key_value_heads': expected a divisor of num_attention_heads \(6\); found 4",
        ),
        ({"hidden_size": 25}, r"'hidden_size': expected a multiple of num_attention_heads \(6\), or a field head_dim"),
        ({"head_dim": 3}, "expected an even number of rotated dims; found 3"),
        ({"hidden_act": "mish"}, "'hidden_act': expected one of silu, swish, gelu, .*, relu, .*; .*found 'mish'"),
        ({"tie_word_embeddings": "yes"}, "'tie_word_embeddings': expected true or false; found 'yes'"),
        ({"quantization_config": {"bits": 4}}, "'quant_method': expected one of fp8, .*, gptq, awq .*; found None"),
        ({"partial_rotary_factor": 0.5}, "LlamaForCausalLM rotates whole heads by one position: .* found 2 of 4 dims"),
        ({"eos_token_id": "</s>"}, "'eos_token_id': expected a token id, a list of them, or null; found '</s>'"),
        ({"bos_token_id": -1}, "'bos_token_id': expected an integer of at least 0; found -1"),
        ({"architectures": None}, r"'architectures': expected a list of one of .*; found None"),
        (
            {"architectures": None, "model_type": "mixtrals"},
            "'model_type': 'mixtrals' is not supported; did you mean 'mixtral'.*; docs/models.md lists",
        ),
        ({"architectures": None, "model_type": ["llama"]}, "'architectures': expected a list of one of"),
        ({"architectures": ["A", "B"]}, r"'architectures': expected a list of one of .*; found \['A', 'B'\]"),
        (
            {"architectures": ["LlamaForCausalLLM"]},
            r"'architectures': 'LlamaForCausalLLM' is not supported; did you mean 'LlamaForCausalLM'",
        ),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        read(**changes)


def test_a_file_is_read(tmp_path):
    rope = {"rope_type": "yarn", "rope_theta": 50.0, "factor": 2.0, "original_max_position_embeddings": 32}
    (tmp_path / "config.json").write_text(json.dumps({**MINIMAL, "rope_parameters": rope}))
    scaling = load_config(tmp_path).rope.scaling
    assert isinstance(scaling, YarnScaling)
    assert scaling.factor == 2.0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "config.json: no such file: give the directory of a Hugging Face model"),
        (b'{"hidden_size": ', "config.json: is no JSON: .* fetch the file again"),
        (b"\xff\xfe\x00", "config.json: is no JSON: .* fetch the file again"),
        (b"[" * 100_000, "config.json: is no JSON: "),
        (b"[1, 2]", "config.json: expected a JSON object; found list"),
        (b"{}", "config.json: field 'architectures': expected a list of one of"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_directory_in_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read: "):
        load_config(tmp_path)
