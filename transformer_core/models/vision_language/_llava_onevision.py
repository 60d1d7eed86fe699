"""LLaVA-OneVision (arXiv:2408.03326) with images: as LLaVA-NeXT, with a bound of the tokens of large images."""

from dataclasses import dataclass
from typing import Any, Final

from lang_core import checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig
from transformer_core.models.families._qwen2 import QWEN2
from transformer_core.models.vision_language._config import ANYRES_MAX
from transformer_core.models.vision_language._family import vision_language_family
from transformer_core.models.vision_language._llava import token_field
from transformer_core.models.vision_language._llava_next import (
    LlavaNext,
    LlavaNextConfig,
    llava_next_recipes,
    read_llava_next,
)

_ARCHITECTURE: Final = "LlavaOnevisionForConditionalGeneration"
_RATIO: Final = "anyres_max_"
_DIGITS: Final = 6  # of a number of tiles
_IMAGE_TOKEN: Final = 151646
# transformers' defaults, where they are others than LLaVA-NeXT's.
_DEFAULTS: Final = {
    "image_grid_pinpoints": [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)],
    "vision_feature_layer": -1,
    "vision_feature_select_strategy": "full",
}
_VISION: Final = {
    "hidden_size": 1152,
    "image_size": 384,
    "intermediate_size": 4304,
    "model_type": "siglip_vision_model",
    "num_attention_heads": 16,
    "num_hidden_layers": 26,
    "patch_size": 14,
    "vision_use_head": False,
}


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaOnevisionConfig(LlavaNextConfig):
    """Configuration of a LLaVA-OneVision; further attributes as of ``LlavaNextConfig``.

    Attributes:
        most_tiles: tiles above whose tokens, and a little more, those of a picture's tiles shrink.
    """

    most_tiles: int

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return {**LlavaNextConfig.facts(self), "image_most_tiles": self.most_tiles}


def _read(fields: ConfigFields) -> DecoderConfig:
    given = {name: value for name, value in fields.values.items() if value is not None}
    # Without a tower transformers takes its own sizes; a tower without a kind is SigLIP's, with SigLIP's sizes.
    vision = _VISION
    if "vision_config" in given:
        vision = {"model_type": _VISION["model_type"], **fields.object("vision_config").values}
    token = {token_field(fields): _IMAGE_TOKEN}
    whole = ConfigFields({**_DEFAULTS, **token, **given, "vision_config": vision}, fields.where)
    return read_llava_next(
        whole, _ARCHITECTURE, (QWEN2,), LlavaOnevisionConfig, ANYRES_MAX, most_tiles=_most_tiles(whole)
    )


def _most_tiles(fields: ConfigFields) -> int:
    ratio = fields.values.get("vision_aspect_ratio", f"{_RATIO}9")
    number = ratio.removeprefix(_RATIO) if isinstance(ratio, str) else ""
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS
    if not is_number or number.startswith("0") or ratio != f"{_RATIO}{number}":
        fields.refuse("vision_aspect_ratio", f"{_RATIO}N with a number N of tiles, 1 to {10**_DIGITS - 1}")
    return int(number)


LLAVA_ONEVISION: Final = vision_language_family(
    _ARCHITECTURE,
    "llava_onevision",
    _read,
    LlavaNext,
    llava_next_recipes,
    ignorable=("*vision_tower.*post_layernorm.*", "*vision_tower.*head.*", "*embeddings.position_ids"),
)
