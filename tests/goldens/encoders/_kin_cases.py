"""Tiny encoders of texts: further kin of BERT, Longformer, MobileBERT, LayoutLMv3 and NeoBERT."""

from typing import Any, Final

from tests.goldens.encoders._case_types import EncoderCase

_BERT: Final[dict[str, Any]] = {
    "hidden_act": "gelu",
    "hidden_size": 24,
    "intermediate_size": 41,
    "layer_norm_eps": 1e-3,
    "max_position_embeddings": 23,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 67,
}


def _of(model_type: str, architecture: str, **fields: Any) -> dict[str, Any]:
    return {**_BERT, "architectures": [architecture], "model_type": model_type, **fields}


def _classes(count: int) -> dict[str, Any]:
    names = {str(label): f"class {label}" for label in range(count)}
    return {"id2label": names, "label2id": {name: int(label) for label, name in names.items()}}


_DEBERTA: Final = {"pos_att_type": "c2p|p2c", "relative_attention": True, "position_biased_input": False}
_MOBILE: Final = {
    "embedding_size": 10,
    "hidden_act": "relu",
    "intra_bottleneck_size": 12,
    "num_feedforward_networks": 3,
}
_LAYOUT: Final = {
    "coordinate_size": 4,
    "input_size": 32,
    "num_attention_heads": 4,
    "pad_token_id": 1,
    "rel_2d_pos_bins": 16,
    "rel_pos_bins": 8,
    "max_rel_pos": 9,
    "shape_size": 4,
    "visual_embed": True,
}
_NEOBERT: Final = {
    "architectures": ["NeoBERT"],
    "hidden_size": 24,
    "intermediate_size": 41,
    "max_length": 29,
    "model_type": "neobert",
    "norm_eps": 1e-3,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "vocab_size": 67,
}
KIN_CASES: Final = (
    EncoderCase(
        "ernie",
        "embeddings of tasks",
        _of("ernie", "ErnieModel", use_task_id=True, task_type_vocab_size=2),
        seed=101,
        lengths=(9, 5),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "bert_next_sentence",
        "whether a text follows another, by the pooler",
        _of("bert", "BertForNextSentencePrediction"),
        seed=121,
        lengths=(9, 6),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "megatron_bert_tokens",
        "norms before attention and feed-forward and after the last layer, none of the embeddings; classes of tokens",
        _of("megatron-bert", "MegatronBertForTokenClassification", **_classes(3)),
        seed=102,
        lengths=(7, 11),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "rembert_masked_lm",
        "embeddings and output projection of two sizes",
        _of("rembert", "RemBertForMaskedLM", input_embedding_size=10, output_embedding_size=14),
        seed=103,
        lengths=(6, 10, 4),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "big_bird_classifier",
        "scaled embeddings, no biases of queries, keys and values; blocks that are as long as texts",
        _of("big_bird", "BigBirdForSequenceClassification", rescale_embeddings=True, use_bias=False, **_classes(4)),
        seed=104,
        lengths=(8, 13),
        must_matter=({"hidden_act": "relu"}, {"rescale_embeddings": False}),
    ),
    EncoderCase(
        "roberta_prelayernorm_masked_lm",
        "norms before attention and feed-forward and after the last layer, and of the embeddings",
        _of("roberta-prelayernorm", "RobertaPreLayerNormForMaskedLM", pad_token_id=2),
        seed=105,
        lengths=(9, 4),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "data2vec_text_classifier",
        "a RoBERTa of another name",
        _of("data2vec-text", "Data2VecTextForSequenceClassification", pad_token_id=1, **_classes(3)),
        seed=106,
        lengths=(5, 12),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "roformer_classifier",
        "RoPE of neighbouring pairs from a stored table, small embeddings, a head with the layers' activation",
        _of("roformer", "RoFormerForSequenceClassification", embedding_size=14, **_classes(3)),
        seed=120,
        lengths=(10, 6),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "deberta_sentence",
        "sentences: fused projections, keys and positions without biases, distances that end at 6",
        _of("deberta", "DebertaModel", max_relative_positions=6, type_vocab_size=0, **_DEBERTA),
        seed=108,
        lengths=(17, 8),
        pooling="mean",
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "deberta_masked_lm",
        "the head of masked language models, over positions of keys alone, and absolute ones",
        _of(
            "deberta",
            "DebertaForMaskedLM",
            **{**_DEBERTA, "pos_att_type": ["c2p"], "position_biased_input": True},
        ),
        seed=109,
        lengths=(6, 11),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "longformer_masked_lm",
        "windows of two sizes, no token that attends to all others",
        _of("longformer", "LongformerForMaskedLM", attention_window=[4, 6], pad_token_id=1),
        seed=110,
        lengths=(12, 12),
        must_matter=({"attention_window": [6, 4]},),
    ),
    EncoderCase(
        "longformer_classifier",
        "the first token attends to all others, with projections of its own",
        _of("longformer", "LongformerForSequenceClassification", attention_window=4, pad_token_id=1, **_classes(3)),
        seed=2120,
        lengths=(16, 16),
        must_matter=({"attention_window": 8}, {"hidden_act": "relu"}),
    ),
    EncoderCase(
        "mobilebert_tokens",
        "bottlenecks, two feed-forwards in a layer, embeddings of three tokens, no norms; classes of tokens",
        _of(
            "mobilebert",
            "MobileBertForTokenClassification",
            **{**_MOBILE, "num_feedforward_networks": 2},
            **_classes(3),
            num_hidden_layers=1,
        ),
        seed=112,
        lengths=(9, 9),
        must_matter=({"hidden_act": "gelu"},),
    ),
    EncoderCase(
        "mobilebert_masked_lm",
        "a head with columns beside the embedding's, norms, attention from the layer's own bottleneck",
        _of(
            "mobilebert",
            "MobileBertForMaskedLM",
            **_MOBILE,
            key_query_shared_bottleneck=False,
            normalization_type="layer_norm",
            use_bottleneck_attention=True,
        ),
        seed=113,
        lengths=(7, 7),
        must_matter=({"hidden_act": "gelu"},),
    ),
    EncoderCase(
        "layoutlmv3_tokens",
        "classes of words in boxes, by a head of two matrices, biases by distances in the text and on the page",
        _of("layoutlmv3", "LayoutLMv3ForTokenClassification", **_LAYOUT, **_classes(11)),
        seed=114,
        lengths=(9, 6),
        must_matter=({"max_rel_2d_pos": 90}, {"max_rel_pos": 20}),
    ),
    EncoderCase(
        "neobert_masked_lm",
        "queries, keys and values of a head after those of another; a head that is a matrix",
        {**_NEOBERT, "architectures": ["NeoBERTLMHead"]},
        seed=115,
        lengths=(11, 6),
        must_matter=({"num_attention_heads": 4}, {"norm_eps": 1e-1}),
    ),
    EncoderCase(
        "neobert_classifier",
        "three classes by the first token's state, a matrix and a tanh",
        {**_NEOBERT, **_classes(3), "architectures": ["NeoBERTForSequenceClassification"], "num_hidden_layers": 1},
        seed=116,
        lengths=(5, 9),
        must_matter=({"num_attention_heads": 4},),
    ),
)
