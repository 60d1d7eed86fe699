"""Tiny decoders whose layers encode texts: sentence embedders, classifiers, rerankers."""

from tests.goldens.encoders._case_types import EncoderCase

_GEMMA3 = {
    "architectures": ["Gemma3TextModel"],
    "head_dim": 10,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 24,
    "intermediate_size": 35,
    "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 64,
    "model_type": "gemma3_text",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 13,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "full_attention": {"rope_theta": 500.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 50.0, "rope_type": "default"},
    },
    "sliding_window": 7,
    "use_bidirectional_attention": True,
    "vocab_size": 71,
}
_QWEN3 = {
    "architectures": ["Qwen3Model"],
    "attention_bias": False,
    "head_dim": 10,
    "hidden_act": "silu",
    "hidden_size": 24,
    "intermediate_size": 35,
    "max_position_embeddings": 64,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "vocab_size": 67,
}
_LLAMA = {
    **{name: _QWEN3[name] for name in _QWEN3 if name not in ("attention_bias", "head_dim")},
    "architectures": ["LlamaModel"],
    "model_type": "llama",
}
_QWEN2 = {**_LLAMA, "architectures": ["Qwen2Model"], "model_type": "qwen2"}
_SCORE = {"id2label": {"0": "score"}, "label2id": {"score": 0}}
DECODER_CASES = (
    EncoderCase(
        "gemma3_sentence",
        "sentences: tokens see later ones, windows of which a half lies before, two matrices after the mean",
        _GEMMA3,
        seed=91,
        lengths=(17, 9),
        pooling="mean",
        dense=(31, 24),
        must_matter=({"use_bidirectional_attention": False}, {"sliding_window": 5}, {"query_pre_attn_scalar": 2}),
    ),
    EncoderCase(
        "qwen3_sentence",
        "sentences: the last token's state",
        _QWEN3,
        seed=82,
        lengths=(6, 13, 4),
        pooling="lasttoken",
        must_matter=({"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}},),
    ),
    EncoderCase(
        "qwen3_reranker",
        "a reranker: the logit of one token less that of another, after the last token",
        {**_QWEN3, "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": False},
        seed=93,
        lengths=(11, 8, 5, 3),
        score=(17, 40),
    ),
    EncoderCase(
        "qwen3_classifier",
        "a reranker that is a classifier of the last token's state",
        {**_QWEN3, **_SCORE, "architectures": ["Qwen3ForSequenceClassification"]},
        seed=94,
        lengths=(7, 12, 9, 5),
    ),
    EncoderCase("llama_states", "a Llama without a head", _LLAMA, seed=85, lengths=(5, 8)),
    EncoderCase(
        "mistral_sentence",
        "sentences: windows, the last token's state",
        {**_LLAMA, "architectures": ["MistralModel"], "head_dim": 6, "model_type": "mistral", "sliding_window": 4},
        seed=86,
        lengths=(12, 7),
        pooling="lasttoken",
        must_matter=({"sliding_window": 5},),
    ),
    EncoderCase("qwen2_sentence", "sentences: biases", _QWEN2, seed=87, lengths=(6, 9), pooling="mean"),
    EncoderCase(
        "qwen2_classifier",
        "one score, biases",
        {**_QWEN2, **_SCORE, "architectures": ["Qwen2ForSequenceClassification"], "head_dim": 6},
        seed=88,
        lengths=(9, 4, 7, 6),
    ),
    EncoderCase(
        "eurobert_sentence",
        "sentences: a Llama whose tokens see later ones, the first token's state",
        {**_LLAMA, "architectures": ["EuroBertModel"], "model_type": "eurobert"},
        seed=88,
        lengths=(9, 14),
        pooling="cls",
        must_matter=({"rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"}},),
    ),
)
