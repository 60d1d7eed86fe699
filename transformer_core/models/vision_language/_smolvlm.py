"""SmolVLM (arXiv:2504.05299) and Idefics 3 (arXiv:2408.12637): SigLIP's tower, squares of patches, a Llama."""

from dataclasses import dataclass
from typing import Final

from lang_core import DType, ExecutionContext, Module, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.layers._linear import Linear
from transformer_core.models.encoders._siglip import VisionTower, vision_names
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, read_picture, read_stack
from transformer_core.models.families._llama import LLAMA
from transformer_core.models.vision_language._config import GRID, VisionLanguageConfig, read_image_token, seeing
from transformer_core.models.vision_language._family import read_decoder, vision_language_family
from transformer_core.models.vision_language._model import VisionLanguageLM
from transformer_core.models.vision_language._projectors import squares_of

_VISION: Final = StackDefaults(1e-6, "gelu_pytorch_tanh", 1152, 3072, 12, 16, 224, 32)
_IMAGE_TOKEN: Final = 128257
_LARGEST_GRID: Final = 64
# transformers finds the positions of patches by fractions in f32: in grids of these sides some patches share one.
_UNEVEN: Final = frozenset((19, 25, 29, 31, 38, 40, 41, 43, 47, 49, 50, 54, 55, 58, 59, 61, 62))


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class SmolVLMConfig(VisionLanguageConfig):
    """Configuration of a SmolVLM; further attributes as of ``VisionLanguageConfig``.

    Attributes:
        shuffle: side of the squares of patches that become one token each.
    """

    shuffle: int


class PixelShuffle(Module):
    """Projection of squares of patches into the decoder's embeddings (Shi et al. 2016, arXiv:1609.05158)."""

    def __init__(self, config: SmolVLMConfig, dtype: DType) -> None:
        self.grid, self.side = config.vision.grid, config.shuffle
        self.proj = Linear(config.vision.stack.hidden * self.side**2, config.hidden, dtype=dtype)

    def forward(self, ctx: ExecutionContext, patches: Tensor) -> Tensor:
        """Maps patches [B, height * width, E] to [B, T, D]; a token has the patches of a square, row by row."""
        return self.proj(ctx, squares_of(ctx, patches, self.grid, self.side))


class SmolVLM(VisionLanguageLM):
    """SmolVLM and Idefics 3."""

    @classmethod
    def parts(cls, config: SmolVLMConfig, dtype: DType) -> tuple[Module, Module]:
        """Makes SigLIP's tower and the projection of squares of patches."""
        return VisionTower(config.vision, dtype), PixelShuffle(config, dtype)


def _read(fields: ConfigFields, architecture: str) -> DecoderConfig:
    # The whole model's field says whether the head is the embedding.
    decoder = read_decoder(fields, (LLAMA,), tied=fields.boolean("tie_word_embeddings", False))
    vision = _read_vision(fields.object("vision_config"), architecture)
    shuffle, (grid, _) = fields.integer("scale_factor", 2), vision.grid
    if grid % shuffle:
        fields.refuse("scale_factor", f"a divisor of the {grid} patches of a side")
    return seeing(
        decoder,
        architecture,
        SmolVLMConfig,
        vision=vision,
        shuffle=shuffle,
        image_token=read_image_token(fields, "image_token_id", _IMAGE_TOKEN, decoder),
        image_tokens=vision.tokens // shuffle**2,
        image_form=GRID,
    )


def _read_vision(fields: ConfigFields, architecture: str) -> VisionConfig:
    stack = read_stack(fields, _VISION)
    vision = VisionConfig(architecture=architecture, stack=stack, **read_picture(fields, _VISION))
    height, width = vision.grid
    if height != width or vision.patch[0] != vision.patch[1]:
        fields.refuse("image_size", "a square of square patches")
    if height > _LARGEST_GRID or height in _UNEVEN:
        uneven = ", ".join(map(str, sorted(_UNEVEN)))
        fields.refuse("patch_size", f"one with which a side has at most {_LARGEST_GRID} patches, and not {uneven}")
    return vision


_KEYS: Final = RenamedModules(
    {
        "connector.proj": "model.connector.modality_projection.proj",
        **vision_names("model.vision_model."),
    }
)


def _family(architecture: str, model_type: str) -> Family:
    return vision_language_family(
        architecture,
        model_type,
        lambda fields: _read(fields, architecture),
        SmolVLM,
        lambda config: _KEYS,
        decoder_in="model.text_model.",
    )


SMOLVLM: Final = _family("SmolVLMForConditionalGeneration", "smolvlm")
IDEFICS3: Final = _family("Idefics3ForConditionalGeneration", "idefics3")
