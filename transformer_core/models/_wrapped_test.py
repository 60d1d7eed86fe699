"""Decoders inside of checkpoints with further models."""

from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core.models import DecoderConfig

_TEXT: Any = {"hidden_size": 24, "num_hidden_layers": 7, "sliding_window": 5, "head_dim": 8, "vocab_size": 31}


def _read(**fields: Any) -> DecoderConfig:
    values = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": _TEXT, "vision_config": {}}
    return DecoderConfig.from_hf(values | fields)


def test_what_the_text_config_leaves_out_is_transformers_default():
    config = _read(eos_token_id=[1, 6])
    assert (config.architecture, config.layers, config.hidden) == ("Gemma3ForConditionalGeneration", 7, 24)
    assert (config.heads, config.kv_heads, config.intermediate, config.norm_eps) == (8, 4, 9216, 1e-6)
    assert (config.tied, config.eos_token_ids, config.rope.trained_length) == (True, (1, 6), 131072)


def test_what_the_whole_says_counts():
    assert not _read(tie_word_embeddings=False).tied
    assert not _read(text_config={**_TEXT, "tie_word_embeddings": False}).tied
    assert _read(text_config={**_TEXT, "tie_word_embeddings": False}, tie_word_embeddings=True).tied


def test_errors_name_the_inner_object():
    with pytest.raises(ConfigError, match="field 'text_config' is missing: expected an object"):
        _read(text_config=None)
    with pytest.raises(ConfigError, match=r"config\.json: text_config: field 'hidden_size': expected an integer"):
        _read(text_config={**_TEXT, "hidden_size": "wide"})


def test_a_cap_of_logits_that_the_whole_model_ignores_is_refused():
    with pytest.raises(ConfigError, match="field 'final_logit_softcapping': expected null: transformers' Gemma3"):
        _read(text_config={**_TEXT, "final_logit_softcapping": 30.0})


def test_without_architectures_the_model_type_names_it():
    config = DecoderConfig.from_hf({"model_type": "gemma3", "text_config": _TEXT})
    assert config.architecture == "Gemma3ForConditionalGeneration"
