"""Tiny encoders, as plain data: nothing here imports torch or transformers.

``make_encoder_goldens.py`` computed the files in ``data/`` from these cases, ``files.py`` reads them.
"""

from tests.goldens.encoders._case_types import EncoderCase
from tests.goldens.encoders._decoder_cases import DECODER_CASES
from tests.goldens.encoders._t5_cases import T5_CASES
from tests.goldens.encoders._text_cases import TEXT_CASES

_BERT = {
    "architectures": ["BertModel"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 24,
    "initializer_range": 0.02,
    "intermediate_size": 41,
    "layer_norm_eps": 1e-3,
    "max_position_embeddings": 19,
    "model_type": "bert",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "type_vocab_size": 3,
    "vocab_size": 67,
}
BERT_CASES = (
    EncoderCase(
        "bert",
        "the pooler, three types of tokens, rows of unequal length",
        _BERT,
        seed=1,
        lengths=(9, 5),
        must_matter=({"layer_norm_eps": 1e-1}, {"hidden_act": "relu"}),
    ),
    EncoderCase(
        "bert_masked_lm",
        "the head of masked language models, over odd heads, with the other gelu",
        {**_BERT, "architectures": ["BertForMaskedLM"], "hidden_act": "gelu_new", "num_attention_heads": 8},
        seed=2,
        lengths=(4, 11, 7),
        must_matter=({"hidden_act": "relu"}, {"num_attention_heads": 4}),
    ),
    EncoderCase(
        "bert_classifier",
        "five classes of pairs of texts",
        {
            **_BERT,
            "architectures": ["BertForSequenceClassification"],
            "id2label": {str(label): f"class {label}" for label in range(5)},
            "label2id": {f"class {label}": label for label in range(5)},
            "num_hidden_layers": 2,
        },
        seed=5,
        lengths=(10, 6),
        must_matter=({"hidden_act": "relu"},),
    ),
    EncoderCase(
        "bert_sentence",
        "sentences: the mean over what is no padding, of length 1",
        {**_BERT, "hidden_size": 20, "num_hidden_layers": 2},
        seed=3,
        lengths=(6, 13, 2),
        pooling="mean",
    ),
    EncoderCase(
        "bert_sentence_max",
        "sentences: the greatest of what is no padding",
        {**_BERT, "num_hidden_layers": 1},
        seed=4,
        lengths=(3, 8),
        pooling="max",
    ),
)
_VIT = {
    "architectures": ["ViTModel"],
    "hidden_act": "gelu",
    "hidden_size": 20,
    "image_size": [8, 13],
    "intermediate_size": 37,
    "layer_norm_eps": 1e-3,
    "model_type": "vit",
    "num_attention_heads": 5,
    "num_channels": 2,
    "num_hidden_layers": 3,
    "patch_size": [2, 3],
    "pooler_act": "tanh",
    "pooler_output_size": 20,
    "qkv_bias": True,
}
_LABELS = {str(label): f"class {label}" for label in range(7)}
VIT_CASES = (
    EncoderCase(
        "vit",
        "pictures and patches that are no squares, with pixels that fill no patch",
        _VIT,
        seed=11,
        must_matter=({"layer_norm_eps": 1e-1}, {"hidden_act": "relu"}, {"num_attention_heads": 4}),
    ),
    EncoderCase(
        "vit_classifier",
        "seven classes, no biases of queries, keys and values, three channels",
        {
            **_VIT,
            "architectures": ["ViTForImageClassification"],
            "id2label": _LABELS,
            "image_size": 9,
            "label2id": {label: int(number) for number, label in _LABELS.items()},
            "num_channels": 3,
            "num_hidden_layers": 2,
            "patch_size": 3,
            "qkv_bias": False,
        },
        seed=12,
        must_matter=({"layer_norm_eps": 1e-1},),
    ),
)
_SIGLIP = {
    "architectures": ["SiglipVisionModel"],
    "attention_dropout": 0.0,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 24,
    "image_size": 14,
    "intermediate_size": 43,
    "layer_norm_eps": 1e-3,
    "model_type": "siglip_vision_model",
    "num_attention_heads": 3,
    "num_channels": 3,
    "num_hidden_layers": 2,
    "patch_size": 4,
    "vision_use_head": True,
}
SIGLIP_CASES = (
    EncoderCase(
        "siglip_vision",
        "no class token, a head that attends with one learned token, pixels that fill no patch",
        _SIGLIP,
        seed=21,
        must_matter=({"layer_norm_eps": 1e-1}, {"hidden_act": "relu"}, {"num_attention_heads": 4}),
    ),
    EncoderCase(
        "siglip_vision_headless",
        "no head",
        {**_SIGLIP, "num_hidden_layers": 1, "vision_use_head": False},
        seed=22,
    ),
    EncoderCase(
        "siglip",
        "pictures and texts, with layers and heads that differ, and fields of inner configurations left out",
        {
            "architectures": ["SiglipModel"],
            "model_type": "siglip",
            "text_config": {
                "hidden_size": 20,
                "intermediate_size": 31,
                "max_position_embeddings": 9,
                "model_type": "siglip_text_model",
                "num_attention_heads": 5,
                "num_hidden_layers": 2,
                "projection_size": 24,
                "vocab_size": 53,
            },
            "vision_config": {
                "hidden_size": 24,
                "image_size": 10,
                "intermediate_size": 43,
                "model_type": "siglip_vision_model",
                "num_attention_heads": 3,
                "num_hidden_layers": 3,
                "patch_size": 4,
            },
        },
        seed=23,
        lengths=(9, 9),
    ),
)
CLIP_CASES = (
    EncoderCase(
        "clip_vision",
        "a class token and a norm before the layers, with gelu's quick form",
        {
            "architectures": ["CLIPVisionModel"],
            "hidden_act": "quick_gelu",
            "hidden_size": 24,
            "image_size": 14,
            "intermediate_size": 43,
            "layer_norm_eps": 1e-3,
            "model_type": "clip_vision_model",
            "num_attention_heads": 3,
            "num_hidden_layers": 2,
            "patch_size": 4,
        },
        seed=24,
        must_matter=({"layer_norm_eps": 1e-1}, {"hidden_act": "gelu"}, {"num_attention_heads": 4}),
    ),
    EncoderCase(
        "clip",
        "pictures and texts of several lengths, with fields of inner configurations left out",
        {
            "architectures": ["CLIPModel"],
            "model_type": "clip",
            "projection_dim": 18,
            "text_config": {
                "eos_token_id": 50,
                "hidden_size": 20,
                "intermediate_size": 31,
                "max_position_embeddings": 11,
                "model_type": "clip_text_model",
                "num_attention_heads": 5,
                "num_hidden_layers": 2,
                "vocab_size": 53,
            },
            "vision_config": {
                "hidden_size": 24,
                "image_size": 10,
                "intermediate_size": 43,
                "model_type": "clip_vision_model",
                "num_attention_heads": 3,
                "num_hidden_layers": 3,
                "patch_size": 4,
            },
        },
        seed=26,
        lengths=(9, 6),
    ),
)
_WHISPER = {
    "activation_function": "gelu",
    "architectures": ["WhisperForConditionalGeneration"],
    "bos_token_id": 1,
    "d_model": 24,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 41,
    "decoder_layers": 3,
    "decoder_start_token_id": 3,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 35,
    "encoder_layers": 2,
    "eos_token_id": 2,
    "max_source_positions": 13,
    "max_target_positions": 21,
    "model_type": "whisper",
    "num_mel_bins": 10,
    "pad_token_id": 2,
    "scale_embedding": False,
    "vocab_size": 71,
}
WHISPER_CASES = (
    EncoderCase(
        "whisper",
        "speech to text: more layers in the decoder than in the encoder, heads that differ, two sequences",
        _WHISPER,
        seed=31,
        lengths=(4, 4),
        steps=12,
        must_matter=({"activation_function": "relu"}, {"encoder_attention_heads": 6}, {"decoder_attention_heads": 2}),
    ),
)
_ALL = (*BERT_CASES, *TEXT_CASES, *DECODER_CASES, *VIT_CASES, *SIGLIP_CASES, *CLIP_CASES, *WHISPER_CASES, *T5_CASES)
ENCODER_CASES: dict[str, EncoderCase] = {case.name: case for case in _ALL}
