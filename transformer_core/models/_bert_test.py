from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.family._model import entry_points
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._weights_testing import context_of
from transformer_core.models._tiny_testing import sizes_of
from transformer_core.models.encoders._bert import (
    BERT,
    BERT_FOR_MASKED_LM,
    BERT_FOR_SEQUENCE_CLASSIFICATION,
)
from transformer_core.models.encoders._text import TextConfig, TextModel
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification

MINIMAL = {
    "architectures": ["BertModel"],
    "hidden_size": 12,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "vocab_size": 31,
}


def read(**changes: Any) -> TextConfig:
    """A ``None`` takes a field away."""
    values = {name: value for name, value in {**MINIMAL, **changes}.items() if value is not None}
    return BERT.read(ConfigFields(values, "dir/config.json"))


def test_what_is_not_said_is_as_transformers_has_it():
    config = read()
    assert (config.types, config.stack.norm_eps, config.stack.activation) == (2, 1e-12, Activation.GELU)
    assert (config.layers, config.stored_layers, config.pooler, config.pooling) == (2, 2, True, None)
    assert config.facts()["positions"] == 9
    assert BERT_FOR_MASKED_LM.read(ConfigFields(MINIMAL, "")).architecture == "BertForMaskedLM"


ALIBI = {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}


def test_slopes_in_the_place_of_positions_and_gates():
    config = read(**ALIBI)
    assert (config.alibi, config.learned_positions, config.stack.gated_mlp) == (True, False, True)
    names = {path for path, _ in TextModel(config).named_parameters()}
    assert "encoder.layers.0.mlp.down_proj.bias" in names
    assert not names & {"embeddings.positions.weight", "encoder.layers.0.mlp.gate_proj.bias"}


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        (BERT, {"feed_forward_type": None}, "field 'feed_forward_type' is missing"),
        (BERT, {"feed_forward_type": "original"}, "'feed_forward_type': expected one of geglu; found 'original'"),
        (BERT_FOR_MASKED_LM, {}, "'position_embedding_type': expected one of absolute; found 'alibi'"),
        (BERT_FOR_SEQUENCE_CLASSIFICATION, {}, "'position_embedding_type': expected one of absolute; found 'alibi'"),
    ],
)
def test_slopes_without_gates_or_with_a_head_are_refused(family, changes, message):
    values = {name: value for name, value in {**MINIMAL, **ALIBI, **changes}.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        family.read(ConfigFields(values, "dir/config.json"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_decoder": True}, "field 'is_decoder': expected false, or no such field; found True"),
        ({"add_cross_attention": True}, "field 'add_cross_attention': expected false"),
        ({"position_embedding_type": "relative_key"}, "'position_embedding_type': expected one of absolute"),
        ({"num_attention_heads": 5}, r"'hidden_size': expected a multiple of num_attention_heads \(5\)"),
        ({"hidden_act": "sine"}, "'hidden_act': expected one of silu"),
        ({"vocab_size": None}, "'vocab_size' is missing"),
        ({"type_vocab_size": 0}, "'type_vocab_size': expected an integer of at least 1"),
    ],
)
def test_what_is_not_supported_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        read(**changes)


def test_sizes():
    model = TextModel(read())
    assert sizes_of(model, 2, None, None) == (2, 9, 9)
    assert sizes_of(TextModel(read(max_position_embeddings=512)), 1, None, None) == (1, 64, 64)
    with pytest.raises(ConfigError, match="sequence: expected at most 9, the positions that have embeddings"):
        entry_points(model, sequence=10)
    with pytest.raises(ConfigError, match="batch: expected 1 or more; found 0"):
        entry_points(model, batch=0)
    with pytest.raises(ConfigError, match="entry point 'prefill' is unknown; available: forward"):
        entry_points(model, names=["prefill"])


def test_arguments_and_results():
    for model, results in ((TextModel(read()), ["last_hidden_state", "pooler_output"]), (lm(), ["logits"])):
        (point,) = entry_points(model, batch=2, sequence=5)
        assert [argument.name for argument in point.arguments] == ["token_ids", "attention_mask", "token_type_ids"]
        ones = np.ones((2, 5), np.int32)
        assert list(point(context_of(model), *[ones] * 3)) == results  # pyright: ignore[reportArgumentType]


def lm() -> TextForMaskedLM:
    return TextForMaskedLM(BERT_FOR_MASKED_LM.read(ConfigFields(MINIMAL, "")), num_layers=1)


def test_classes():
    fields = {**MINIMAL, "id2label": {"0": "a", "1": "b", "2": "c"}}
    config = BERT_FOR_SEQUENCE_CLASSIFICATION.read(ConfigFields(fields, ""))
    assert (config.labels, config.facts()["labels"], config.pooler) == (3, 3, True)
    assert BERT_FOR_SEQUENCE_CLASSIFICATION.read(ConfigFields({**MINIMAL, "num_labels": 1}, "")).labels == 1
    model = TextForSequenceClassification(config)
    (point,) = entry_points(model, batch=2, sequence=4)
    actual = point(context_of(model), *[np.ones((2, 4), np.int32)] * 3)  # pyright: ignore[reportArgumentType]
    assert {name: tensor.shape for name, tensor in actual.items()} == {"logits": (2, 3)}


def test_the_heads_matrix_is_the_embedding():
    model = lm()
    assert model.tied() == {
        "cls.predictions.decoder.weight": "embeddings.tokens.weight",
        "cls.predictions.decoder.bias": "head.bias",
    }
    assert [path for path, p in model.named_parameters() if p.spec.shape == (31, 12)] == ["embeddings.tokens.weight"]


def test_padding_changes_nothing_for_the_others():
    model = TextModel(read())
    ctx, ids = context_of(model), np.arange(1, 9, dtype=np.int32).reshape(1, 8)
    types = np.zeros_like(ids)
    mask = (np.arange(8) < 5).astype(np.int32)[None]
    padded = model(ctx, ids, mask, types).numpy()[:, :5]
    short = model(ctx, ids[:, :5], mask[:, :5], types[:, :5]).numpy()
    np.testing.assert_allclose(padded, short, rtol=1e-5, atol=1e-5)


def test_forms_of_caches_are_refused():
    for asked, plain in (({"positions": "per_row"}, "shared"), ({"verify_tokens": 3}, "None")):
        (name,) = asked
        with pytest.raises(ConfigError, match=f"{name}: expected {plain}, for BertModel has no caches; found"):
            entry_points(TextModel(read()), sequence=5, **asked)  # pyright: ignore[reportArgumentType]
