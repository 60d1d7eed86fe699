"""Metadata of encoders of texts that transformers has not: what is read, and what is refused by name."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.family import family_named
from transformer_core.layers._rope import inverse_frequencies
from transformer_core.layers._rope_scaling import NoScaling
from transformer_core.models.gguf import GgufModel, _config_test
from transformer_core.models.gguf._metadata_testing import LLAMA

made = _config_test.made
_TYPES = "token_types.weight"
BERT: dict[str, Any] = {**LLAMA, "attention.layer_norm_epsilon": 1e-5, "rope.freq_base": 500.0, "pooling_type": 1}
_MOE = {**BERT, "expert_count": 4, "expert_used_count": 2, "moe_every_n_layers": 2}


def test_fields_of_files_that_transformers_has_no_model_of(made: Callable[..., GgufModel]) -> None:
    sparse = made("nomic-bert-moe", _MOE, _TYPES).config_values
    expected = {"num_experts": 4, "num_experts_per_tok": 2, "moe_every_n_layers": 2, "hidden_act": "gelu"}
    assert expected.items() <= sparse.items()
    jina = made("jina-bert-v2", BERT, _TYPES).config_values
    assert (jina["position_embedding_type"], jina["feed_forward_type"]) == ("alibi", "geglu")
    llama = made("llama-embed", {**LLAMA, "pooling_type": 1}, "blk.0.attn_q.bias").config_values
    assert (llama["architectures"], llama["attention_bias"]) == (["EuroBertModel"], True)


def test_a_llama_that_encodes_has_the_files_divisors_of_frequencies(made: Callable[..., GgufModel]) -> None:
    """Frequencies that models of Llama 3.1 have."""
    divisors = [1.0, 2.0, 4.0, 8.0]
    values = made("llama-embed", {**LLAMA, "pooling_type": 1}, rope_freqs=divisors).config_values
    config = family_named("EuroBertModel").read(ConfigFields(values, "config.json"))
    assert config.bidirectional
    rope = config.decoder.rope
    plain = inverse_frequencies(dataclasses.replace(rope, scaling=NoScaling()))
    np.testing.assert_allclose(inverse_frequencies(rope), plain / np.array(divisors), rtol=1e-6)


@pytest.mark.parametrize(
    ("architecture", "fields", "names", "message"),
    [
        ("nomic-bert-moe", {**_MOE, "moe_every_n_layers": 1}, (), "'moe_every_n_layers': expected an integer of at le"),
        ("nomic-bert-moe", {**BERT, "expert_count": 4}, (), "field 'moe_every_n_layers' is missing"),
        ("nomic-bert-moe", {**_MOE, "pooling_type": 0}, (), r"'pooling_type': expected 1 \(mean\), 2 \(first token\)"),
        (
            "nomic-bert",
            {**BERT, "expert_count": 4},
            (),
            "'expert_count': expected no such field, or 0: nomic-bert file",
        ),
        ("jina-bert-v2", {**BERT, "pooling_type": 4}, (), r"'pooling_type': expected 1 \(mean\), 2 \(first token\)"),
        (
            "jina-bert-v2",
            BERT,
            ("blk.0.attn_q_norm.weight",),
            "attn_q_norm found, expected none: .* take a model for te",
        ),
        ("llama-embed", LLAMA, (), r"'pooling_type': expected 1 \(mean\), 2 \(first token\)"),
        ("llama-embed", {**LLAMA, "pooling_type": 1, "expert_count": 4}, (), "'expert_count': expected no such field"),
        ("neo-bert", BERT, (), "general.architecture: 'neo-bert' is not supported; did you mean 'nomic-bert'"),
    ],
)
def test_refusals(
    architecture: str, fields: dict[str, Any], names: tuple[str, ...], message: str, made: Callable[..., GgufModel]
) -> None:
    with pytest.raises(ConfigError, match=message):
        made(architecture, fields, _TYPES, *names)
