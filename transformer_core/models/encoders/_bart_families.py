"""Families of BART's group: BART, LED, PLBART, mBART, Pegasus, Marian, M2M-100 and NLLB, Blenderbot."""

from typing import Final

from transformer_core.models.encoders._bart import bart_family, sizes
from transformer_core.models.encoders._bart_config import BartKind, PositionKind

_LARGE: Final = (12, 12), 16, 4096
BART: Final = bart_family(
    "BartForConditionalGeneration",
    "bart",
    BartKind(offset=2, post_norm=True, embedding_norm=True),
    sizes(50265, 1024, 1024, *_LARGE),
)
LED: Final = bart_family(
    "LEDForConditionalGeneration",
    "led",
    BartKind(post_norm=True, embedding_norm=True, scaled=None, windowed=True, prefix="led"),
    {
        **sizes(50265, 1024, 1024, *_LARGE),
        "max_encoder_position_embeddings": 16384,
        "max_decoder_position_embeddings": 1024,
    },
)
PLBART: Final = bart_family(
    "PLBartForConditionalGeneration",
    "plbart",
    BartKind(offset=2, post_norm=True, embedding_norm=True, scaled=True),
    sizes(50005, 1024, 768, (6, 6), 12, 3072),
)
MBART: Final = bart_family(
    "MBartForConditionalGeneration",
    "mbart",
    BartKind(offset=2, embedding_norm=True),
    sizes(50265, 1024, 1024, *_LARGE),
)
PEGASUS: Final = bart_family(
    "PegasusForConditionalGeneration",
    "pegasus",
    BartKind(positions=PositionKind.STATIC),
    sizes(50265, 1024, 1024, *_LARGE),
)
MARIAN: Final = bart_family(
    "MarianMTModel",
    "marian",
    BartKind(positions=PositionKind.STATIC, post_norm=True),
    {**sizes(58101, 1024, 1024, *_LARGE), "shares": True},
)
M2M_100: Final = bart_family(
    "M2M100ForConditionalGeneration",
    "m2m_100",
    BartKind(positions=PositionKind.SINUSOIDS, logits_bias=False, activation="relu", scaled=True),
    sizes(128112, 1024, 1024, *_LARGE),
)
BLENDERBOT: Final = bart_family(
    "BlenderbotForConditionalGeneration",
    "blenderbot",
    BartKind(),
    sizes(8008, 128, 2560, (2, 24), 32, 10240),
)
BLENDERBOT_SMALL: Final = bart_family(
    "BlenderbotSmallForConditionalGeneration",
    "blenderbot-small",
    BartKind(post_norm=True, embedding_norm=True, norms_tokens=True),
    sizes(50265, 512, 512, (8, 8), 16, 2048),
)
BART_GROUP: Final = (BART, LED, PLBART, MBART, PEGASUS, MARIAN, M2M_100, BLENDERBOT, BLENDERBOT_SMALL)
"""Families of BART's group."""
