"""Configuration of a decoder that sees pictures."""

from dataclasses import dataclass, fields
from typing import Any

from lang_core import checked_choices
from transformer_core.family._config import DecoderConfig
from transformer_core.models.encoders._vision import VisionConfig


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLanguageConfig(DecoderConfig):
    """Configuration of a decoder that sees pictures; other attributes are the decoder's.

    Attributes:
        vision: vision tower.
        shuffle: side of the squares of patches that become one token each.
        image_token: placeholder token id for image embeddings.
    """

    vision: VisionConfig
    shuffle: int
    image_token: int

    @property
    def image_tokens(self) -> int:
        """Number of tokens of one picture, or of one tile of a larger picture."""
        return self.vision.tokens // self.shuffle**2

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        seen = {"image_token": self.image_token, "image_tokens": self.image_tokens}
        return {**DecoderConfig.facts(self), "vision": self.vision.facts(), **seen}


def seeing(decoder: DecoderConfig, architecture: str, **vision: Any) -> VisionLanguageConfig:
    """Returns the configuration of a decoder with a vision tower.

    Args:
        decoder: configuration of the decoder alone.
        architecture: architecture of the whole.
        **vision: attributes that the decoder does not have.
    """
    known = {field.name: getattr(decoder, field.name) for field in fields(decoder)}
    return VisionLanguageConfig(**{**known, "architecture": architecture, **vision})
