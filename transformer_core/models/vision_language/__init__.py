"""Multimodal decoders, one family per file, and their shared parts."""

from transformer_core.models.vision_language._config import VisionLanguageConfig
from transformer_core.models.vision_language._gemma3 import GEMMA3_VISION
from transformer_core.models.vision_language._internvl import INTERNVL
from transformer_core.models.vision_language._llava import LLAVA
from transformer_core.models.vision_language._model import VisionLanguageLM
from transformer_core.models.vision_language._smolvlm import IDEFICS3, SMOLVLM

VISION_LANGUAGE = (SMOLVLM, IDEFICS3, LLAVA, INTERNVL, GEMMA3_VISION)
"""Families of models of pictures and text."""

__all__ = [
    "VISION_LANGUAGE",
    "VisionLanguageConfig",
    "VisionLanguageLM",
]
