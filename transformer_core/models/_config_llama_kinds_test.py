"""Configurations of dense families that are nearly a Llama: what is read, and what is refused by name."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core import QueryGrowth, QueryKeyNormKind, RopeKind, RopeMode, YarnScaling
from transformer_core.family._layer_configs import NormKind
from transformer_core.layers._rope_scaling import LongropeScaling, NoScaling
from transformer_core.models._config_testing import read

_FULL, _SLIDING = "full_attention", "sliding_attention"
_YARN = {"rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 16}
_PLAIN = {"rope_type": "default", "rope_theta": 200.0}


def test_olmo3() -> None:
    """Layers with windows have a RoPE that is not scaled: where the file gives one, and in transformers 4's form."""
    ropes = {_FULL: _YARN, _SLIDING: _PLAIN}
    config = read("Olmo3", rope_parameters=ropes, layer_types=[_SLIDING, _FULL, _SLIDING], sliding_window=7)
    assert (config.qk_norm_whole, config.windows) == (True, (7, None, 7))
    assert config.rope_kinds == (RopeKind.LOCAL, RopeKind.MODEL, RopeKind.LOCAL)
    assert isinstance(config.rope.scaling, YarnScaling)
    assert config.local_rope is not None
    assert (config.rope.base, config.local_rope.base, config.local_rope.scaling) == (300.0, 200.0, NoScaling())
    before = read("Olmo3", rope_scaling=_YARN, num_hidden_layers=5)
    assert before.windows == (4096,) * 3 + (None, 4096)
    assert isinstance(before.rope.scaling, YarnScaling)
    assert before.local_rope is not None
    assert (before.local_rope.base, before.local_rope.scaling) == (5e5, NoScaling())


@pytest.mark.parametrize("kind", ["su", "yarn"])
@pytest.mark.parametrize("field", ["type", "rope_type"])
def test_phi3_calls_longrope_by_older_names(kind: str, field: str) -> None:
    factors = {"short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0]}
    expected, actual = (read("Phi3", rope_scaling={field: name, **factors}).rope for name in ("longrope", kind))
    assert isinstance(actual.scaling, LongropeScaling)
    assert actual == expected
    assert actual != read("Phi3", rope_scaling={field: kind, **factors}, original_max_position_embeddings=16).rope


def test_ministral3() -> None:
    rope = {**_YARN, "llama_4_scaling_beta": 0.1}
    config = read("Ministral3", num_key_value_heads=2, head_dim=6, rope_parameters=rope)
    assert (config.query_growth, config.windows) == (QueryGrowth(0.1, 16), (None,) * 3)
    level = {**rope, "llama_4_scaling_beta": 0.0}
    assert read("Ministral3", num_key_value_heads=2, head_dim=6, rope_parameters=level).query_growth is None


def test_coheres() -> None:
    """Command R7B rotates the layers with windows only."""
    plain = read("Cohere")
    assert (plain.norm, plain.parallel, plain.logits_scale) == (NormKind.LAYER_WITHOUT_BIAS, True, 0.0625)
    assert (plain.rope.base, plain.rope.mode, plain.tied, plain.rope_kinds) == (5e5, RopeMode.INTERLEAVED, True, ())
    second = read("Cohere2", num_hidden_layers=5, sliding_window=9)
    assert second.windows == (9, 9, 9, None, 9)
    assert second.rope_kinds == (RopeKind.MODEL,) * 3 + (RopeKind.NONE, RopeKind.MODEL)
    assert second.rope.base == 1e4


@pytest.mark.parametrize(
    ("architecture", "switch", "kind"),
    [
        ("Cohere", "use_qk_norm", QueryKeyNormKind.LAYER_PER_HEAD),
        ("StableLm", "qk_layernorm", QueryKeyNormKind.LAYER_PER_HEAD),
        ("Phi", "qk_layernorm", QueryKeyNormKind.LAYER),
    ],
)
def test_layer_norms_of_queries_and_keys(architecture: str, switch: str, kind: QueryKeyNormKind) -> None:
    sizes = {"num_key_value_heads": 2, "hidden_size": 96}
    assert not read(architecture, **sizes).qk_norm
    config = read(architecture, **sizes, **{switch: True})
    assert (config.qk_norm, config.qk_norm_kind) == (True, kind)


def test_exaone4() -> None:
    """Without a window all layers are rotated; a pattern as text, which transformers reads not, may stand by types."""
    whole = read("Exaone4", num_key_value_heads=2, sliding_window="null")
    assert (whole.windows, set(whole.rope_kinds)) == ((None,) * 3, {RopeKind.MODEL})
    types = [_SLIDING, _FULL, _FULL]
    some = read("Exaone4", num_key_value_heads=2, sliding_window=5, sliding_window_pattern="LLLG", layer_types=types)
    assert some.windows == (5, None, None)
    assert some.rope_kinds == (RopeKind.MODEL, RopeKind.NONE, RopeKind.NONE)
    assert read("Exaone4", num_key_value_heads=2, sliding_window_pattern=2).windows == (4096, None, 4096)


def test_hunyuan_stretches_the_base_of_rope() -> None:
    config = read("HunYuanDenseV1", head_dim=6, rope_scaling={"type": "dynamic", "alpha": 16.0, "factor": 1.0})
    assert (config.rope.base, config.rope.scaling) == (pytest.approx(1e4 * 16**1.5), NoScaling())
    assert (config.qk_norm, config.qk_norm_after_rope) == (True, True)


def test_ministral_has_windows_in_every_layer_but_where_the_file_says_otherwise() -> None:
    values = {"num_key_value_heads": 2}
    assert read("Ministral", **values).windows == (4096,) * 3
    assert read("Ministral", **values, sliding_window="null").windows == (None,) * 3
    types = [_SLIDING, _FULL, _SLIDING]
    assert read("Ministral", **values, sliding_window=5, layer_types=types).windows == (5, None, 5)


def test_jais2_has_biases_unless_the_file_takes_them_away() -> None:
    config = read("Jais2")
    assert (config.norm, config.gated_mlp, config.qkv_bias, config.mlp_bias) == (NormKind.LAYER, False, True, True)
    bare = read("Jais2", attention_bias=False, mlp_bias=False)
    assert (bare.qkv_bias, bare.output_bias, bare.mlp_bias) == (False, False, False)


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("Olmo3", {"rope_theta": 1e4}, "'rope_theta': expected 500000, or rope_parameters with .*; found 10000.0"),
        ("Olmo3", {"rope_parameters": {_FULL: _PLAIN}}, "rope_parameters: field 'sliding_attention' is missing"),
        (
            "Olmo3",
            {"rope_parameters": {_FULL: {**_YARN, "truncate": False}, _SLIDING: _PLAIN}},
            "rope_parameters: full_attention: field 'truncate': expected true, or no such field",
        ),
        (
            "Olmo3",
            {"layer_types": ["chunked_attention"] * 3},
            "'layer_types': expected a list of 3 .* of full_attention",
        ),
        (
            "Olmo3",
            {"sliding_window": "null"},
            "'sliding_window': expected an integer of at least 1, for some layers are",
        ),
        ("Ministral3", {"num_key_value_heads": 2, "head_dim": 6}, "field 'rope_parameters' is missing"),
        (
            "Ministral3",
            {"num_key_value_heads": 2, "head_dim": 6, "rope_parameters": _YARN},
            "rope_parameters: field 'llama_4_scaling_beta' is missing",
        ),
        (
            "Ministral3",
            {"num_key_value_heads": 2, "head_dim": 6, "rope_parameters": {**_PLAIN, "llama_4_scaling_beta": 0.1}},
            "rope_parameters: field 'original_max_position_embeddings' is missing",
        ),
        ("Cohere2", {"layer_types": [_FULL] * 2}, r"'layer_types': expected a list of 3 \(num_hidden_layers\)"),
        (
            "Exaone4",
            {"num_key_value_heads": 2, "sliding_window_pattern": "LG"},
            "'sliding_window_pattern': expected an in",
        ),
        (
            "Exaone4",
            {"num_key_value_heads": 2, "sliding_window": "null", "layer_types": [_SLIDING] * 3},
            "'sliding_window': expected an integer of at least 1, for some layers are of type sliding_attention",
        ),
        (
            "HunYuanDenseV1",
            {"head_dim": 2, "rope_scaling": {"type": "dynamic", "alpha": 16.0}},
            "rope_scaling: field 'alpha': expected none: heads of 2 dims have no base to stretch",
        ),
        ("SeedOss", {"num_key_value_heads": 2}, "field 'head_dim' is missing"),
        (
            "Helium",
            {"num_key_value_heads": 2, "head_dim": 6},
            "'head_dim': expected hidden_size / num_attention_heads, as its output projection is square; found 6",
        ),
        ("Nemotron", {"num_key_value_heads": 4}, r"'num_key_value_heads': expected a divisor of num_attention_heads"),
        (
            "Ministral",
            {"num_key_value_heads": 2, "sliding_window": "null", "layer_types": [_SLIDING] * 3},
            "'sliding_window': expected an integer of at least 1, for some layers are of type sliding_attention",
        ),
        ("Jais2", {"num_key_value_heads": 4}, r"'num_key_value_heads': expected a divisor of num_attention_heads"),
        ("Jais2", {"mlp_bias": "yes"}, "'mlp_bias': expected true or false; found 'yes'"),
        ("Jais2", {"use_qk_norm": True}, "'use_qk_norm': expected none or off, for Jais2ForCausalLM does not read it"),
        (
            "VaultGemma",
            {"num_key_value_heads": 2, "head_dim": 6, "hidden_activation": "relu6"},
            "'hidden_activation': expected one of silu, .*; found 'relu6'",
        ),
        (
            "VaultGemma",
            {"num_key_value_heads": 2, "head_dim": 6, "layer_types": [_FULL] * 2},
            r"'layer_types': expected a list of 3 \(num_hidden_layers\)",
        ),
        ("Ernie4_5", {"num_key_value_heads": 2, "head_dim": 6, "use_bias": 1}, "'use_bias': expected true or false"),
    ],
)
def test_what_they_refuse(architecture: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(architecture, **changes)
