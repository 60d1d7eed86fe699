"""Tiny models of sound: wav2vec 2.0, HuBERT and WavLM of samples, AST of spectrograms, with their heads."""

from typing import Any, Final

from tests.goldens.encoders._case_types import EncoderCase

_SOUND: Final[dict[str, Any]] = {
    "conv_bias": False,
    "conv_dim": [12, 10, 14],
    "conv_kernel": [5, 3, 2],
    "conv_stride": [3, 2, 2],
    "feat_extract_activation": "gelu",
    "feat_extract_norm": "group",
    "hidden_act": "gelu",
    "hidden_size": 24,
    "intermediate_size": 35,
    "layer_norm_eps": 1e-3,
    "num_attention_heads": 3,
    "num_conv_pos_embedding_groups": 4,
    "num_conv_pos_embeddings": 18,
    "num_feat_extract_layers": 3,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "vocab_size": 19,
}
_STABLE: Final[dict[str, Any]] = {"conv_bias": True, "do_stable_layer_norm": True, "feat_extract_norm": "layer"}
_LABELS: Final[dict[str, Any]] = {
    "classifier_proj_size": 13,
    "id2label": {"0": "down", "1": "left", "2": "right"},
    "label2id": {"down": 0, "left": 1, "right": 2},
}


def _case(name: str, twist: str, seed: int, architecture: str, *matter: dict[str, Any], **fields: Any) -> EncoderCase:
    family = name.partition("_")[0]
    config = {**_SOUND, "architectures": [architecture], "model_type": family, **fields}
    return EncoderCase(name, twist, config, seed=seed, lengths=(21, 21), must_matter=matter)


SOUND_CASES: Final = (
    _case(
        "wav2vec2_ctc",
        "channels normed over time, norms behind the additions, an even number of taps of positions",
        301,
        "Wav2Vec2ForCTC",
        {"layer_norm_eps": 1e-1},
        {"feat_extract_activation": "relu"},
        {"num_attention_heads": 4},
    ),
    _case(
        "wav2vec2_adapters",
        "MMS: norms first, an adapter behind each layer, biases of convolutions, more taps than frames",
        302,
        "Wav2Vec2ForCTC",
        {"hidden_act": "relu"},
        adapter_attn_dim=6,
        num_conv_pos_embeddings=35,
        **_STABLE,
    ),
    _case(
        "wav2vec2_classifier",
        "a classifier of a weighted sum of the layers' states",
        303,
        "Wav2Vec2ForSequenceClassification",
        {"layer_norm_eps": 1e-1},
        use_weighted_layer_sum=True,
        **_LABELS,
        **_STABLE,
    ),
    _case("wav2vec2", "states alone", 304, "Wav2Vec2Model", num_conv_pos_embeddings=7),
    _case("hubert_ctc", "no norm before the projection", 305, "HubertForCTC", feat_proj_layer_norm=False),
    _case("hubert_classifier", "a classifier of the last states", 306, "HubertForSequenceClassification", **_LABELS),
    _case(
        "wavlm_ctc",
        "biases of scores by distance, gated by each query, norms behind the additions",
        307,
        "WavLMForCTC",
        {"max_bucket_distance": 30},
        max_bucket_distance=9,
        num_buckets=12,
    ),
    _case("wavlm", "gated biases, norms first", 308, "WavLMModel", max_bucket_distance=11, num_buckets=10, **_STABLE),
)
_AST: Final[dict[str, Any]] = {
    "architectures": ["ASTModel"],
    "frequency_stride": 3,
    "hidden_act": "gelu",
    "hidden_size": 24,
    "intermediate_size": 37,
    "layer_norm_eps": 1e-3,
    "max_length": 25,
    "model_type": "audio-spectrogram-transformer",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "num_mel_bins": 15,
    "patch_size": 4,
    "time_stride": 2,
}
SPECTROGRAM_CASES: Final = (
    EncoderCase(
        "ast",
        "overlapping patches of a spectrogram, strides that differ and leave bins and frames over",
        _AST,
        seed=311,
        must_matter=({"hidden_act": "relu"}, {"num_attention_heads": 4}),
    ),
    EncoderCase(
        "ast_classifier",
        "a norm before the classifier, no biases of queries, keys and values",
        {
            **_AST,
            "architectures": ["ASTForAudioClassification"],
            "id2label": {"0": "dog", "1": "rain", "2": "siren"},
            "label2id": {"dog": 0, "rain": 1, "siren": 2},
            "qkv_bias": False,
        },
        seed=312,
        must_matter=({"layer_norm_eps": 1e-1},),
    ),
)
