"""Multimodal decoders, one family per file, and their shared parts."""

from transformer_core.models.vision_language._config import VisionLanguageConfig
from transformer_core.models.vision_language._gemma3 import GEMMA3_VISION
from transformer_core.models.vision_language._internvl import INTERNVL
from transformer_core.models.vision_language._llava import LLAVA
from transformer_core.models.vision_language._llava_next import LLAVA_NEXT
from transformer_core.models.vision_language._llava_onevision import LLAVA_ONEVISION
from transformer_core.models.vision_language._model import VisionLanguageLM
from transformer_core.models.vision_language._pixtral import MISTRAL3_VISION
from transformer_core.models.vision_language._qwen_vl import QWEN2_5_VL, QWEN2_VL, QWEN3_VL, QWEN3_VL_MOE
from transformer_core.models.vision_language._smolvlm import IDEFICS3, SMOLVLM

VISION_LANGUAGE = (
    SMOLVLM,
    IDEFICS3,
    LLAVA,
    LLAVA_NEXT,
    LLAVA_ONEVISION,
    INTERNVL,
    GEMMA3_VISION,
    MISTRAL3_VISION,
    QWEN2_VL,
    QWEN2_5_VL,
    QWEN3_VL,
    QWEN3_VL_MOE,
)
"""Families of models of pictures and text."""

__all__ = [
    "VISION_LANGUAGE",
    "VisionLanguageConfig",
    "VisionLanguageLM",
]
