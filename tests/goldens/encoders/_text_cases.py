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
_DISTILBERT = {
    "activation": "gelu",
    "architectures": ["DistilBertModel"],
    "dim": 24,
    "hidden_dim": 41,
    "max_position_embeddings": 19,
    "model_type": "distilbert",
    "n_heads": 4,
    "n_layers": 3,
    "pad_token_id": 0,
    "sinusoidal_pos_embds": False,
    "vocab_size": 67,
}
DISTILBERT_CASES = (
    EncoderCase(
        "distilbert_sentence",
        "sentences: the mean, of layers without types of tokens",
        _DISTILBERT,
        seed=91,
        lengths=(11, 6),
        pooling="mean",
    ),
    EncoderCase(
        "distilbert_masked_lm",
        "the head of masked language models, with the layers' activation; positions that are computed at first",
        {
            **_DISTILBERT,
            "activation": "relu",
            "architectures": ["DistilBertForMaskedLM"],
            "n_layers": 2,
            "sinusoidal_pos_embds": True,
        },
        seed=92,
        lengths=(4, 9, 7),
        must_matter=({"activation": "gelu"}, {"n_heads": 8}),
    ),
    EncoderCase(
        "distilbert_classifier",
        "three classes, by a head of two matrices with a ReLU",
        {**_DISTILBERT, **_classes(3), "architectures": ["DistilBertForSequenceClassification"], "n_layers": 1},
        seed=93,
        lengths=(5, 10, 2),
        must_matter=({"activation": "relu"},),
    ),
)
_ELECTRA = {
    "architectures": ["ElectraModel"],
    "embedding_size": 14,
    "hidden_act": "gelu",
    "hidden_size": 24,
    "intermediate_size": 41,
    "layer_norm_eps": 1e-3,
    "max_position_embeddings": 19,
    "model_type": "electra",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 67,
}
_ALBERT = {
    **_ELECTRA,
    "architectures": ["AlbertModel"],
    "model_type": "albert",
    "num_hidden_layers": 3,
    "num_hidden_groups": 2,
}
ELECTRA_CASES = (
    EncoderCase(
        "electra_sentence",
        "sentences: the first token's state, over embeddings of another size",
        _ELECTRA,
        seed=94,
        lengths=(12, 7),
        pooling="cls",
    ),
    EncoderCase(
        "electra_masked_lm",
        "the generator's head, whose activation is gelu; embeddings of the layers' size",
        {
            **_ELECTRA,
            "architectures": ["ElectraForMaskedLM"],
            "embedding_size": 24,
            "hidden_act": "relu",
            "num_hidden_layers": 1,
        },
        seed=95,
        lengths=(5, 9),
        must_matter=({"hidden_act": "gelu"},),
    ),
    EncoderCase(
        "electra_classifier",
        "three classes, by a head of two matrices with a GELU",
        {**_ELECTRA, **_classes(3), "architectures": ["ElectraForSequenceClassification"], "num_hidden_layers": 1},
        seed=96,
        lengths=(8, 4, 6),
        must_matter=({"hidden_act": "relu"},),
    ),
)
ALBERT_CASES = (
    EncoderCase(
        "albert_sentence",
        "sentences: the mean, of three layers that are one and another",
        _ALBERT,
        seed=97,
        lengths=(13, 6),
        pooling="mean",
        must_matter=({"num_hidden_layers": 4},),
    ),
    EncoderCase(
        "albert_masked_lm",
        "the head of masked language models over one layer that runs twice",
        {
            **{name: value for name, value in _ALBERT.items() if name not in ("hidden_act", "num_hidden_groups")},
            "architectures": ["AlbertForMaskedLM"],
            "num_hidden_layers": 2,
        },
        seed=98,
        lengths=(4, 10),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "albert_classifier",
        "four classes, by the pooler",
        {**_ALBERT, **_classes(4), "architectures": ["AlbertForSequenceClassification"]},
        seed=99,
        lengths=(7, 11),
        must_matter=({"hidden_act": "relu"},),
    ),
)
HEAD_CASES = (
    EncoderCase(
        "camembert_tokens",
        "a RoBERTa of another name; five classes of tokens",
        {
            **_ROBERTA,
            **_classes(5),
            "architectures": ["CamembertForTokenClassification"],
            "model_type": "camembert",
            "num_hidden_layers": 1,
        },
        seed=48,
        lengths=(9, 4),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "mpnet_answers",
        "logits of the beginning and the end of an answer",
        {**_MPNET, "architectures": ["MPNetForQuestionAnswering"], "num_hidden_layers": 1},
        seed=54,
        lengths=(8, 13),
        must_matter=({"hidden_act": "relu"},),
    ),
)
_MODERNBERT = {
    "architectures": ["ModernBertModel"],
    "hidden_activation": "gelu",
    "hidden_size": 24,
    "intermediate_size": 35,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "local_attention": 6,
    "max_position_embeddings": 64,
    "model_type": "modernbert",
    "norm_eps": 1e-3,
    "num_attention_heads": 3,
    "num_hidden_layers": 4,
    "pad_token_id": 0,
    "rope_parameters": {
        "full_attention": {"rope_theta": 500.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 50.0, "rope_type": "default"},
    },
    "vocab_size": 71,
}
_NARROW = {"full_attention": {"rope_theta": 500.0, "rope_type": "default"}}
MODERNBERT_CASES = (
    EncoderCase(
        "modernbert_sentence",
        "sentences: layers with windows and another RoPE, a first layer without a norm, the mean of the states",
        {**_MODERNBERT, "mlp_bias": True},
        seed=61,
        lengths=(19, 11),
        pooling="mean",
        must_matter=(
            {"hidden_activation": "relu"},
            {"local_attention": 4},
            {"rope_parameters": {**_NARROW, "sliding_attention": {"rope_theta": 500.0, "rope_type": "default"}}},
        ),
    ),
    EncoderCase(
        "modernbert_plain_sentence",
        "sentences: the first token's state, no biases at all",
        _MODERNBERT,
        seed=64,
        lengths=(17, 9),
        pooling="cls",
        must_matter=({"local_attention": 4},),
    ),
    EncoderCase(
        "modernbert_masked_lm",
        "transformers 4's fields, all biases, a linear scaling in layers of both kinds, a window of an odd number",
        {
            **{name: _MODERNBERT[name] for name in _MODERNBERT if name not in ("layer_types", "rope_parameters")},
            "architectures": ["ModernBertForMaskedLM"],
            "attention_bias": True,
            "classifier_activation": "relu",
            "classifier_bias": True,
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 700.0,
            "local_attention": 5,
            "local_rope_theta": 70.0,
            "mlp_bias": True,
            "norm_bias": True,
            "rope_scaling": {"factor": 2.0, "rope_type": "linear"},
        },
        seed=62,
        lengths=(9, 13, 5),
        must_matter=({"classifier_activation": "gelu"}, {"global_attn_every_n_layers": 3}, {"local_rope_theta": 7.0}),
    ),
    EncoderCase(
        "modernbert_classifier",
        "a cross-encoder on the mean of the states",
        {
            **_MODERNBERT,
            **_SCORE,
            "architectures": ["ModernBertForSequenceClassification"],
            "classifier_pooling": "mean",
            "num_hidden_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        seed=63,
        lengths=(12, 7, 9, 4),
        must_matter=({"classifier_pooling": "cls"},),
    ),
)
_NOMIC = {
    "architectures": ["NomicBertModel"],
    "hidden_act": "silu",
    "hidden_size": 24,
    "intermediate_size": 35,
    "layer_norm_eps": 1e-3,
    "max_position_embeddings": 32,
    "model_type": "nomic_bert",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
    "type_vocab_size": 2,
    "vocab_size": 61,
}
NOMIC_CASES = (
    EncoderCase(
        "nomic_bert_sentence",
        "sentences: RoPE and gates in a BERT, the mean of the states",
        _NOMIC,
        seed=71,
        lengths=(17, 9),
        pooling="mean",
        must_matter=({"hidden_act": "relu"}, {"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}),
    ),
    EncoderCase(
        "nomic_bert_masked_lm",
        "heads that are wider than their share, one type of tokens, the base of RoPE left out",
        {
            **{name: _NOMIC[name] for name in _NOMIC if name != "rope_parameters"},
            "architectures": ["NomicBertForMaskedLM"],
            "head_dim": 10,
            "type_vocab_size": 1,
        },
        seed=72,
        lengths=(6, 11, 8),
        must_matter=({"layer_norm_eps": 1e-1},),
    ),
    EncoderCase(
        "nomic_bert_classifier",
        "three classes, with the pooler",
        {**_NOMIC, **_classes(3), "architectures": ["NomicBertForSequenceClassification"]},
        seed=73,
        lengths=(7, 5),
        must_matter=({"hidden_act": "relu"},),
    ),
)
_JINA = {
    **{name: _ROBERTA[name] for name in _ROBERTA if name not in ("architectures", "model_type")},
    "architectures": ["JinaEmbeddingsV3Model"],
    "max_position_embeddings": 32,
    "model_type": "jina_embeddings_v3",
    "num_hidden_layers": 2,
    "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
}
JINA_CASES = (
    EncoderCase(
        "jina_v3_sentence",
        "sentences: RoPE in a RoBERTa with one type of tokens, the mean of the states",
        _JINA,
        seed=76,
        lengths=(15, 8),
        pooling="mean",
        must_matter=({"hidden_act": "relu"}, {"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}}),
    ),
    EncoderCase(
        "jina_v3_masked",
        "a language head, and one layer",
        {**_JINA, "architectures": ["JinaEmbeddingsV3ForMaskedLM"], "num_hidden_layers": 1},
        seed=77,
        lengths=(9, 4),
        must_matter=({"layer_norm_eps": 1e-1},),
    ),
    EncoderCase(
        "jina_v3_classifier",
        "three classes",
        {
            **_JINA,
            **_classes(3),
            "architectures": ["JinaEmbeddingsV3ForSequenceClassification"],
            "num_hidden_layers": 1,
        },
        seed=78,
        lengths=(5, 8),
        must_matter=({"hidden_act": "relu"},),
    ),
)
TEXT_CASES = (
    *ROBERTA_CASES,
    *MPNET_CASES,
    *DISTILBERT_CASES,
    *ELECTRA_CASES,
    *ALBERT_CASES,
    *HEAD_CASES,
    *MODERNBERT_CASES,
    *NOMIC_CASES,
    *JINA_CASES,
)
