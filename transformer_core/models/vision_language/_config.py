"""Configuration of a decoder that sees pictures."""

from dataclasses import dataclass, fields
from typing import Any, Final

from lang_core import checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig
from transformer_core.models.encoders._vision import VisionConfig

GRID: Final = "grid"
"""Form of prompts in which a picture is rows of tiles with their numbers, and the whole (SmolVLM)."""
PLAIN: Final = "plain"
"""Form of prompts in which a picture is its tokens alone (LLaVA)."""
ENCLOSED: Final = "enclosed"
"""Form of prompts in which a picture is the tokens of all its tiles between a first and a last token (InternVL)."""

FRAMED: Final = "framed"
"""Form of prompts in which a picture's tokens stand between two marks and empty lines (Gemma 3)."""

DYNAMIC: Final = "dynamic"
"""Form of prompts in which a picture has as many tokens as its size gives it (Qwen2-VL)."""

ANYRES: Final = "anyres"
"""Form of prompts in which a picture is the whole, then rows of all tiles without their margins (LLaVA-NeXT)."""

ANYRES_MAX: Final = "anyres_max"
"""Form of prompts as ``anyres``, in which large pictures have no more tokens than some tiles (LLaVA-OneVision)."""

ROWS: Final = "rows"
"""Form of prompts in which a picture is rows of as many tokens as its size gives it, with marks (Pixtral)."""


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLanguageConfig(DecoderConfig):
    """Configuration of a decoder that sees pictures; other attributes are the decoder's.

    Attributes:
        decoder: architecture of the decoder's family.
        vision: vision tower.
        image_token: placeholder token id for image embeddings.
        image_tokens: number of tokens of one picture, or of one tile of a larger picture; at most, in the form
            ``dynamic``.
        image_form: text that stands for a picture in a prompt: ``grid``, ``plain``, ``enclosed``, ``framed``,
            ``dynamic``, ``anyres``, ``anyres_max`` or ``rows``.
        image_marks: ids of the tokens before and behind a picture's in the form ``framed``.
        scaled_images: whether image embeddings are multiplied by ``embedding_scale``, as those of tokens are (Granite).
        image_whole: whether the tokens of a picture see each other in both directions, so that they run in one call.
    """

    decoder: str
    vision: VisionConfig
    image_token: int
    image_tokens: int
    image_form: str
    image_marks: tuple[int, ...] = ()
    scaled_images: bool = False
    image_whole: bool = False

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        seen = {name: getattr(self, name) for name in ("image_token", "image_tokens", "image_form")}
        if self.image_whole:
            seen |= {"image_marks": list(self.image_marks), "image_whole": True}
        return {**DecoderConfig.facts(self), "vision": self.vision.facts(), **seen}


def seeing(
    decoder: DecoderConfig, architecture: str, kind: type[VisionLanguageConfig] = VisionLanguageConfig, **vision: Any
) -> VisionLanguageConfig:
    """Returns the configuration of a decoder with a vision tower.

    Args:
        decoder: configuration of the decoder alone.
        architecture: architecture of the whole.
        kind: class of the configuration.
        **vision: attributes that the decoder does not have.
    """
    known = {field.name: getattr(decoder, field.name) for field in fields(decoder)}
    return kind(**{**known, "architecture": architecture, "decoder": decoder.architecture, **vision})


def read_image_token(fields: ConfigFields, name: str, default: int, decoder: DecoderConfig) -> int:
    """Reads the placeholder token id for image embeddings."""
    image_token = fields.integer(name, default, minimum=0)
    if image_token >= decoder.vocabulary:
        fields.refuse(name, f"below vocab_size ({decoder.vocabulary})")
    return image_token
