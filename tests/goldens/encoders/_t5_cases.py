"""Tiny T5s: encoder and decoder, and the encoder alone."""

from tests.goldens.encoders._case_types import EncoderCase

_T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "d_ff": 41,
    "d_kv": 7,
    "d_model": 24,
    "decoder_start_token_id": 0,
    "eos_token_id": 1,
    "feed_forward_proj": "relu",
    "layer_norm_epsilon": 1e-3,
    "model_type": "t5",
    "num_decoder_layers": 3,
    "num_heads": 4,
    "num_layers": 2,
    "pad_token_id": 0,
    "relative_attention_max_distance": 12,
    "relative_attention_num_buckets": 8,
    "vocab_size": 71,
}
T5_CASES = (
    EncoderCase(
        "t5",
        "text to text: more layers in the decoder than in the encoder, heads that are wider than their share, padding",
        _T5,
        seed=122,
        lengths=(9, 6),
        steps=12,
        must_matter=(
            {"feed_forward_proj": "gelu"},
            {"relative_attention_max_distance": 20},
            {"layer_norm_epsilon": 1e-1},
        ),
    ),
    EncoderCase(
        "t5_gated",
        "a head of its own, to which states come as they are, and gates",
        {**_T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 1, "tie_word_embeddings": False},
        seed=108,
        lengths=(7, 11),
        steps=12,
        must_matter=({"feed_forward_proj": "gated-relu"},),
    ),
    EncoderCase(
        "t5_sentence",
        "sentences: the encoder alone, and a matrix after the mean",
        {**_T5, "architectures": ["T5EncoderModel"]},
        seed=103,
        lengths=(13, 8),
        pooling="mean",
        dense=(17,),
        must_matter=({"relative_attention_max_distance": 30},),
    ),
    EncoderCase(
        "umt5",
        "biases by distance of each layer",
        {**_T5, "architectures": ["UMT5ForConditionalGeneration"], "model_type": "umt5"},
        seed=101,
        lengths=(8, 5),
        steps=12,
        must_matter=({"relative_attention_max_distance": 20},),
    ),
)
