"""Configurations of BERT's successors: what is read, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core._feed_forward import Activation
from transformer_core.family._registry import family_in
from transformer_core.models import load_model
from transformer_core.models.encoders import TextConfig

SIZES = {
    "hidden_size": 12,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "vocab_size": 31,
}


def read(architecture: str, **changes: Any) -> TextConfig:
    fields = ConfigFields({"architectures": [architecture], **SIZES, **changes}, "dir/config.json")
    return family_in(fields).read(fields)


def test_what_is_not_said_is_as_transformers_has_it():
    roberta, mpnet = read("RobertaModel"), read("MPNetModel")
    assert (roberta.padding, roberta.positions, roberta.types) == (1, 7, 2)
    assert (mpnet.padding, mpnet.positions, mpnet.types, mpnet.relative_rows) == (1, 7, 0, 32)
    assert (roberta.stack.norm_eps, roberta.stack.activation) == (1e-12, Activation.GELU)
    assert read("XLMRobertaModel", pad_token_id=0).positions == 8
    assert read("MPNetModel", pad_token_id=0).positions == 7
    assert read("RobertaForSequenceClassification").labels == 2


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("RobertaModel", {"is_decoder": True}, "field 'is_decoder': expected false, or no such field; found True"),
        ("RobertaModel", {"max_position_embeddings": 2}, "'max_position_embeddings': expected 3 at least, for posi"),
        ("RobertaModel", {"pad_token_id": -1}, "'pad_token_id': expected an integer of at least 0; found -1"),
        ("XLMRobertaModel", {"position_embedding_type": "relative_key"}, "'position_embedding_type': expected one of"),
        ("MPNetModel", {"relative_attention_num_buckets": 16}, "'relative_attention_num_buckets': expected an integ"),
        ("MPNetModel", {"num_attention_heads": 5}, r"'hidden_size': expected a multiple of num_attention_heads \(5\)"),
        ("RobertaForCausalLM", {}, "field 'architectures': expected one of"),
    ],
)
def test_what_is_not_supported_is_refused(architecture: str, changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        read(architecture, **changes)


def test_a_file_without_architectures_is_of_the_model_without_a_head(tmp_path: Path):
    for model_type, architecture in (("roberta", "RobertaModel"), ("xlm-roberta", "XLMRobertaModel")):
        (tmp_path / "config.json").write_text(json.dumps({**SIZES, "model_type": model_type}))
        assert load_model(tmp_path).config.architecture == architecture
