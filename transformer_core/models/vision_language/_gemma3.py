"""Gemma 3 with pictures (arXiv:2503.19786): SigLIP's tower, pooled patches whose tokens see each other, a Gemma 3."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig
from transformer_core.layers._norm import RMSNorm
from transformer_core.models.encoders._siglip import VisionTower, read_siglip_vision, vision_names
from transformer_core.models.families._gemma3 import GEMMA3, GEMMA3_WRAPPED
from transformer_core.models.vision_language._config import FRAMED, VisionLanguageConfig, read_image_token, seeing
from transformer_core.models.vision_language._family import below, vision_language_family
from transformer_core.models.vision_language._model import VisionLanguageLM


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma3VisionConfig(VisionLanguageConfig):
    """Configuration of a Gemma 3 with pictures; further attributes as of ``VisionLanguageConfig``.

    Attributes:
        pool: side of the squares of patches that become one token each.
    """

    pool: int


class PooledProjector(Module):
    """Means of squares of patches, normed and projected."""

    def __init__(self, config: Gemma3VisionConfig, dtype: DType) -> None:
        size, eps = config.vision.stack.hidden, config.vision.stack.norm_eps
        self.grid, self.pool = config.vision.grid, config.pool
        self.norm = RMSNorm(size, eps=eps, zero_centred=True, dtype=dtype)
        self.weight = Parameter((size, config.hidden), dtype)

    def forward(self, ctx: ExecutionContext, patches: Tensor) -> Tensor:
        """Maps patches [B, height * width, E] to [B, T, D]."""
        ops, side, (height, width), (batch, _, size) = ctx.ops, self.pool, self.grid, patches.shape
        apart = ops.reshape(patches, (batch, height // side, side, width // side, side, size))
        pooled = ops.reshape(ops.mean(apart, (2, 4)), (batch, height * width // side**2, size))
        return ops.dot_general(self.norm(ctx, pooled), ctx.parameter(self.weight), ((2,), (0,)))


class Gemma3Vision(VisionLanguageLM):
    """Gemma 3 with pictures."""

    @classmethod
    def parts(cls, config: Gemma3VisionConfig, dtype: DType) -> tuple[Module, Module]:
        """Makes SigLIP's tower and the projector."""
        return VisionTower(config.vision, dtype), PooledProjector(config, dtype)


def _read(fields: ConfigFields) -> DecoderConfig:
    alone = GEMMA3_WRAPPED.read(fields)
    if not fields.values.get("vision_config"):
        return alone
    decoder, inner = replace(alone, architecture=GEMMA3.architecture), fields.object("vision_config")
    inner.choice("model_type", ("siglip_vision_model",), "siglip_vision_model")
    vision = replace(read_siglip_vision(inner, GEMMA3_WRAPPED.architecture), pooled=0)
    tokens, (height, width) = fields.integer("mm_tokens_per_image", 256), vision.grid
    side = math.isqrt(tokens)
    if side**2 != tokens or height != width or height % side:
        fields.refuse("mm_tokens_per_image", f"the square of a divisor of the {height} patches of a side")
    image_token = read_image_token(fields, _named(fields, "image_token"), 262144, decoder)
    if not image_token:
        fields.refuse(_named(fields, "image_token"), "above 0: 0 is the id of padding")
    return seeing(
        decoder,
        GEMMA3_WRAPPED.architecture,
        Gemma3VisionConfig,
        vision=vision,
        pool=height // side,
        image_token=image_token,
        image_tokens=tokens,
        image_form=FRAMED,
        image_marks=(
            read_image_token(fields, _named(fields, "boi_token"), 255999, decoder),
            read_image_token(fields, _named(fields, "eoi_token"), 256000, decoder),
        ),
        image_whole=True,
    )


def _named(fields: ConfigFields, token: str) -> str:
    return f"{token}_id" if fields.has(f"{token}_id") else f"{token}_index"


_PROJECTOR: Final = {
    "connector.norm": "multi_modal_projector.mm_soft_emb_norm",
    "connector.weight": "multi_modal_projector.mm_input_projection_weight",
}


def _recipes(config: Any) -> RecipeOf:
    del config
    places = ("vision_tower.vision_model.", "vision_tower.", "model.vision_tower.vision_model.", "model.vision_tower.")
    tower = RenamedModules(
        {ours: stored for ours, stored in vision_names("").items() if ".head." not in ours}, above=places
    )
    return first_of(below("vision_model.", tower), RenamedModules(_PROJECTOR, above=("model.",)))


GEMMA3_VISION: Final = vision_language_family(
    GEMMA3_WRAPPED.architecture,
    GEMMA3_WRAPPED.model_type,
    _read,
    Gemma3Vision,
    _recipes,
    alone=GEMMA3_WRAPPED,
    ignorable=("*vision_tower.*head.*", "*embeddings.position_ids", "language_model.lm_head.weight"),
)
