"""Fields of decoders with GPT's names: OPT, XGLM, GPT-Neo, GPT-J, CodeGen, BLOOM, Falcon, MPT."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.layers._rope_config import RopeMode
from transformer_core.models import DecoderConfig

_SIZES = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 50}
_GPT = {"n_embd": 24, "n_head": 4, "n_layer": 2, "vocab_size": 50, "n_positions": 32}
_MPT = {"d_model": 24, "n_heads": 6, "n_layers": 2, "vocab_size": 50}


def read(name: str, sizes: dict[str, Any], **changes: Any) -> DecoderConfig:
    return DecoderConfig.from_hf({"architectures": [f"{name}ForCausalLM"], **sizes, **changes})


def test_opt():
    config = read("OPT", _SIZES, ffn_dim=40)
    assert (config.learned_positions, config.intermediate, config.tied, config.final_norm) == (2048, 40, True, True)
    after = read("OPT", _SIZES, do_layer_norm_before=False, enable_bias=False)
    assert (after.post_norm, after.final_norm, after.qkv_bias, after.intermediate) == (True, False, False, 96)


def test_xglm_and_gptj_have_names_of_their_own():
    xglm = read("XGLM", {"d_model": 24, "attention_heads": 4, "num_layers": 2, "vocab_size": 50})
    assert (xglm.first_sinusoid, xglm.layers, xglm.heads, xglm.embedding_scale) == (2, 2, 4, 24**0.5)
    gptj = read("GPTJ", _GPT, rotary_dim=4)
    assert (gptj.rope.rotated, gptj.rope.mode, gptj.head_bias, gptj.rope.reach) == (4, RopeMode.INTERLEAVED, True, 32)


def test_gpt_neo():
    sizes = {"hidden_size": 24, "num_heads": 4, "num_layers": 4, "vocab_size": 50, "window_size": 5}
    assert read("GPTNeo", sizes).windows == (None, 5, None, 5)
    assert read("GPTNeo", sizes, attention_types=[[["local"], 3], [["global"], 1]]).windows == (5, 5, 5, None)
    listed = ["global", "local", "local", "global"]
    assert read("GPTNeo", sizes, attention_layers=listed).windows == (None, 5, 5, None)


def test_slopes():
    bloom = read("Bloom", {**_SIZES, "num_attention_heads": 6})
    assert bloom.alibi is not None
    assert [round(slope, 4) for slope in bloom.alibi.slopes] == [0.25, 0.0625, 0.0156, 0.0039, 0.5, 0.125]
    mpt = read("Mpt", _MPT)
    assert mpt.alibi is not None
    assert [round(slope, 4) for slope in mpt.alibi.slopes] == [0.25, 0.0625, 0.0156, 0.0039, 0.5, 0.125]


def test_falcon():
    first = read("Falcon", _SIZES)
    assert (first.kv_heads, first.parallel, first.shared_norm, first.tied) == (1, True, True, True)
    second = read("Falcon", _SIZES, new_decoder_architecture=True, num_kv_heads=2)
    assert (second.kv_heads, second.parallel, second.shared_norm) == (2, True, False)
    with_alibi = read("Falcon", _SIZES, alibi=True, parallel_attn=False, multi_query=False)
    assert with_alibi.alibi is not None
    assert with_alibi.alibi.rounded
    assert (with_alibi.kv_heads, with_alibi.rotates) == (4, False)


@pytest.mark.parametrize(
    ("name", "sizes", "changes", "message"),
    [
        (
            "OPT",
            _SIZES,
            {"word_embed_proj_dim": 12},
            r"expected hidden_size \(24\): projections",
        ),
        ("XGLM", {**_SIZES, "hidden_size": 21, "num_attention_heads": 3}, {}, "'d_model': expected an even number"),
        ("GPTNeo", _SIZES, {"attention_types": [[["near"], 2]]}, r"'attention_types': expected a list of pairs"),
        ("GPTNeo", _SIZES, {"attention_types": 3}, "'attention_types': expected a list of pairs of kinds"),
        (
            "GPTNeo",
            _SIZES,
            {"attention_layers": ["global"]},
            r"expected a list of 2 \(num_layers\)",
        ),
        ("GPTJ", _GPT, {"rotary_dim": 8}, "'rotary_dim': expected an even number of at most 6, the size of a head"),
        ("CodeGen", {**_GPT, "n_head": 6, "rotary_dim": 2}, {}, "'n_head': expected a multiple of 4; found 6"),
        ("Bloom", _SIZES, {"apply_residual_connection_post_layernorm": True}, "expected false: residuals of normed"),
        ("Falcon", _SIZES, {"new_decoder_architecture": True, "num_kv_heads": 3}, r"a divisor of num_attention_heads"),
        (
            "Falcon",
            _SIZES,
            {"new_decoder_architecture": True, "parallel_attn": False},
            "expected true, with new",
        ),
        ("Falcon", _SIZES, {"num_ln_in_parallel_attn": 2}, "'num_ln_in_parallel_attn': expected 1, without new_decod"),
        ("Mpt", _MPT, {"attn_config": {"qk_ln": True}}, "attn_config: field 'qk_ln': expected false, or no such"),
        ("Mpt", _MPT, {"attn_config": {"alibi": False}}, "attn_config: field 'alibi': expected true, or no such"),
        ("Mpt", _MPT, {"attn_config": {"alibi_bias_max": 16}}, "'alibi_bias_max': expected 8, which transformers"),
        ("Mpt", _MPT, {"expansion_ratio": 2}, "'expansion_ratio': expected 4, as transformers computes it"),
        ("Mpt", _MPT, {"logit_scale": 0.5}, "'logit_scale': expected null, as transformers computes it"),
    ],
)
def test_what_is_refused(name: str, sizes: dict[str, Any], changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        read(name, sizes, **changes)
