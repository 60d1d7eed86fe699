"""Tiny models of BART's group: text to text, with absolute positions."""

from typing import Any, Final

from tests.goldens.encoders._case_types import EncoderCase

_SIZES: Final[dict[str, Any]] = {
    "activation_function": "gelu",
    "d_model": 24,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 37,
    "decoder_layers": 3,
    "decoder_start_token_id": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 41,
    "encoder_layers": 2,
    "eos_token_id": 2,
    "max_position_embeddings": 30,
    "pad_token_id": 1,
    "vocab_size": 71,
}


def _case(name: str, twist: str, architecture: str, seed: int, matter: dict[str, Any], **fields: Any) -> EncoderCase:
    return EncoderCase(
        name,
        twist,
        {**_SIZES, "architectures": [architecture], **fields},
        seed=seed,
        lengths=(9, 6),
        steps=12,
        must_matter=(matter,),
    )


BART_CASES: Final = (
    _case(
        "bart",
        "norms behind the additions, positions that begin in the third row, a bias of the logits",
        "BartForConditionalGeneration",
        106,
        {"scale_embedding": True},
        model_type="bart",
    ),
    _case(
        "led",
        "windows in the encoder, no token that attends to all others, more positions of the source than of an answer",
        "LEDForConditionalGeneration",
        108,
        {"attention_window": 4},
        model_type="led",
        attention_window=[4, 8],
        max_encoder_position_embeddings=34,
        max_decoder_position_embeddings=23,
    ),
    _case(
        "mbart",
        "norms before the parts, after the embeddings and after the last layer, scaled embeddings",
        "MBartForConditionalGeneration",
        171,
        {"activation_function": "relu"},
        model_type="mbart",
        scale_embedding=True,
    ),
    _case(
        "marian",
        "a vocabulary for each side, positions that are computed",
        "MarianMTModel",
        100,
        {"activation_function": "gelu"},
        model_type="marian",
        activation_function="swish",
        scale_embedding=True,
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=53,
        decoder_start_token_id=1,
    ),
    _case(
        "m2m_100",
        "sinusoids behind the padding's, and no bias of the logits",
        "M2M100ForConditionalGeneration",
        163,
        {"scale_embedding": False},
        model_type="m2m_100",
    ),
    _case(
        "blenderbot_small",
        "a decoder that norms tokens before it adds positions",
        "BlenderbotSmallForConditionalGeneration",
        100,
        {"scale_embedding": True},
        model_type="blenderbot-small",
    ),
)
