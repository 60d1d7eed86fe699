"""Tiny encoders of texts: BERT's successors."""

from typing import Any

from tests.goldens.encoders._case_types import EncoderCase

_SCORE = {"id2label": {"0": "score"}, "label2id": {"score": 0}}


def _classes(count: int) -> dict[str, Any]:
    """Fields of ``count`` classes."""
    names = {str(label): f"class {label}" for label in range(count)}
    return {"id2label": names, "label2id": {name: int(label) for label, name in names.items()}}


_ROBERTA = {
    "architectures": ["RobertaModel"],
    "bos_token_id": 0,
    "eos_token_id": 2,
    "hidden_act": "gelu",
    "hidden_size": 24,
    "intermediate_size": 41,
    "layer_norm_eps": 1e-3,
    "max_position_embeddings": 19,
    "model_type": "roberta",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 1,
    "type_vocab_size": 1,
    "vocab_size": 67,
}
_XLM_ROBERTA = {**_ROBERTA, "architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"}
ROBERTA_CASES = (
    EncoderCase(
        "roberta",
        "positions after padding's id, which is not 1, two types of tokens, the pooler",
        {**_ROBERTA, "pad_token_id": 3, "type_vocab_size": 2},
        seed=41,
        lengths=(9, 5),
        must_matter=({"layer_norm_eps": 1e-1}, {"hidden_act": "relu"}, {"pad_token_id": 2}),
    ),
    EncoderCase(
        "roberta_masked_lm",
        "a head whose activation is gelu whatever the layers have",
        {**_ROBERTA, "architectures": ["RobertaForMaskedLM"], "hidden_act": "relu"},
        seed=42,
        lengths=(4, 11, 7),
        must_matter=({"num_attention_heads": 8}, {"hidden_act": "gelu"}),
    ),
    EncoderCase(
        "roberta_classifier",
        "six classes, one layer",
        {**_ROBERTA, **_classes(6), "architectures": ["RobertaForSequenceClassification"], "num_hidden_layers": 1},
        seed=47,
        lengths=(6, 3),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "xlm_roberta_masked_lm",
        "the head of masked language models over one layer",
        {**_XLM_ROBERTA, "architectures": ["XLMRobertaForMaskedLM"], "num_hidden_layers": 1},
        seed=46,
        lengths=(8, 5),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "xlm_roberta_classifier",
        "a cross-encoder: one score per pair of texts, by a head of two matrices",
        {**_XLM_ROBERTA, **_SCORE, "architectures": ["XLMRobertaForSequenceClassification"], "num_hidden_layers": 2},
        seed=45,
        lengths=(10, 6, 3, 7),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "xlm_roberta_sentence",
        "sentences: the first token's state, of length 1",
        {**_XLM_ROBERTA, "num_hidden_layers": 1},
        seed=44,
        lengths=(6, 13),
        pooling="cls",
    ),
)
_MPNET = {
    "architectures": ["MPNetModel"],
    "hidden_act": "gelu",
    "hidden_size": 24,
    "intermediate_size": 35,
    "layer_norm_eps": 1e-3,
    "max_position_embeddings": 43,
    "model_type": "mpnet",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "relative_attention_num_buckets": 32,
    "vocab_size": 71,
}
MPNET_CASES = (
    EncoderCase(
        "mpnet_sentence",
        "sentences: the mean, over biases by distance with more than one token in a bucket",
        _MPNET,
        seed=51,
        lengths=(40, 21),
        pooling="mean",
    ),
    EncoderCase(
        "mpnet_masked_lm",
        "the head of masked language models, rows of the table that no distance has, padding's id that does not count",
        {**_MPNET, "architectures": ["MPNetForMaskedLM"], "pad_token_id": 5, "relative_attention_num_buckets": 33},
        seed=52,
        lengths=(7, 12),
        must_matter=({"hidden_act": "relu"}, {"layer_norm_eps": 1e-1}),
    ),
    EncoderCase(
        "mpnet_classifier",
        "four classes, by a head of two matrices",
        {**_MPNET, **_classes(4), "architectures": ["MPNetForSequenceClassification"]},
        seed=53,
        lengths=(5, 9, 2),
        must_matter=({"hidden_act": "relu"},),
    ),
)
TEXT_CASES = (*ROBERTA_CASES, *MPNET_CASES)
