"""Tiny T5Gemmas: Gemma 2's layers as encoder and decoder."""

from typing import Any, Final

from tests.goldens.encoders._case_types import EncoderCase

_PART: Final[dict[str, Any]] = {
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 9.0,
    "head_dim": 8,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 24,
    "intermediate_size": 41,
    "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 40,
    "model_type": "t5_gemma_module",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "query_pre_attn_scalar": 12,
    "rms_norm_eps": 1e-3,
    "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
    "sliding_window": 3,
    "vocab_size": 71,
}
_DECODER: Final[dict[str, Any]] = {
    **_PART,
    "hidden_size": 32,
    "intermediate_size": 37,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
}
_TIED: Final[dict[str, Any]] = {
    "architectures": ["T5GemmaForConditionalGeneration"],
    "bos_token_id": 2,
    "decoder": _DECODER,
    "decoder_start_token_id": 2,
    "encoder": _PART,
    "eos_token_id": 1,
    "model_type": "t5gemma",
    "pad_token_id": 0,
    "vocab_size": 71,
}
T5GEMMA_CASES: Final = (
    EncoderCase(
        "t5gemma",
        "windows on both sides in the encoder, capped scores and logits, a wider decoder with other heads, padding",
        _TIED,
        seed=105,
        lengths=(9, 6),
        steps=12,
        must_matter=(
            {"encoder": {**_PART, "sliding_window": 4}},
            {"decoder": {**_DECODER, "sliding_window": 4}},
            {"decoder": {**_DECODER, "attn_logit_softcapping": 50.0}},
            {"decoder": {**_DECODER, "final_logit_softcapping": None}},
        ),
    ),
    EncoderCase(
        "t5gemma_untied",
        "a head of its own, scores that are not capped",
        {**_TIED, "decoder": {**_DECODER, "attn_logit_softcapping": None}, "tie_word_embeddings": False},
        seed=100,
        lengths=(7, 11),
        steps=9,
        must_matter=({"encoder": {**_PART, "attn_logit_softcapping": 50.0}},),
    ),
)
