"""SigLIP: images and texts as vectors of one space (Zhai et al. 2023, arXiv:2303.15343)."""

from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import Embedding
from transformer_core.layers._linear import Linear
from transformer_core.models.encoders._pair import PairConfig, PairModel
from transformer_core.models.encoders._siglip import (
    VisionTower,
    read_siglip_stack,
    read_siglip_vision,
    stack_names,
    vision_names,
    with_fused_head,
)
from transformer_core.models.encoders._stack import EncoderStack, layer_norm


class TextTower(Module):
    """Text model: tokens, positions, layers, a norm, and the head on the last token's state."""

    def __init__(self, config: PairConfig, dtype: DType) -> None:
        hidden = config.stack.hidden
        self.tokens = Embedding(config.vocabulary, hidden, dtype=dtype)
        self.positions = Embedding(config.positions, hidden, dtype=dtype)
        self.encoder = EncoderStack(config.stack, dtype)
        self.norm = layer_norm(config.stack, dtype)
        self.head = Linear(hidden, config.vision.pooled, bias=True, dtype=dtype)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Maps token_ids i32 [B, T] to [B, D], from the last token, padding or not."""
        ops, (batch, tokens) = ctx.ops, token_ids.shape
        x = ops.add(self.tokens(ctx, token_ids), self.positions(ctx, ops.iota((tokens,))))
        x = self.norm(ctx, self.encoder(ctx, x))
        return self.head(ctx, ops.reshape(ops.slice_axis(x, 1, tokens - 1, tokens), (batch, x.shape[2])))


class SiglipModel(PairModel):
    """SigLIP: a ``PairModel``.

    Texts are padded to T, by default the greatest as in training; padding is not masked.
    """

    def __init__(self, config: PairConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.vision_model = VisionTower(self.config.vision, self.dtype)
        self.text_model = TextTower(self.config, self.dtype)
        self.logit_scale, self.logit_bias = Parameter((1,), self.dtype), Parameter((1,), self.dtype)

    @property
    def vector_size(self) -> int:
        """D, the size of vectors."""
        return self.config.vision.pooled

    def image_vectors(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Maps pixel_values [B, C, height, width] to vectors [B, D] of any length."""
        tower = self.vision_model
        assert tower.head is not None  # _read refuses a model without a head
        return tower.head(ctx, tower(ctx, pixel_values))

    def text_vectors(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Maps token_ids i32 [B, T] to vectors [B, D] of any length."""
        return self.text_model(ctx, token_ids)

    def scored(self, ctx: ExecutionContext, alike: Tensor) -> Tensor:
        """Maps cosines f32 [B, B] to logits."""
        ops = ctx.ops
        scale, bias = (ops.cast(ctx.parameter(scalar), f32) for scalar in (self.logit_scale, self.logit_bias))
        return ops.add(ops.mul(alike, ops.exp(scale)), bias)


def _read(fields: ConfigFields) -> PairConfig:
    architecture, text = SIGLIP.architecture, fields.object("text_config")
    vision = read_siglip_vision(fields.object("vision_config"), architecture)
    stack = read_siglip_stack(text)
    if not vision.pooled:
        fields.object("vision_config").refuse("vision_use_head", "true: without the head an image has no vector")
    if text.integer("projection_size", stack.hidden) != vision.stack.hidden:
        text.refuse("projection_size", f"hidden_size of vision_config ({vision.stack.hidden})")
    return PairConfig(
        architecture=architecture,
        stack=stack,
        vision=vision,
        vocabulary=text.integer("vocab_size", 32000),
        positions=text.integer("max_position_embeddings", 64),
    )


_KEYS: Final = with_fused_head(
    RenamedModules(
        {
            **vision_names("vision_model."),
            **stack_names("text_model.encoder", "text_model.encoder"),
            "text_model.tokens": "text_model.embeddings.token_embedding",
            "text_model.positions": "text_model.embeddings.position_embedding",
            "text_model.norm": "text_model.final_layer_norm",
        }
    )
)

SIGLIP: Final[ModelFamily[Any]] = ModelFamily(
    "SiglipModel",
    "siglip",
    _read,
    SiglipModel,
    lambda config: _KEYS,
    "*encoder.layers.{}",
    ("*embeddings.position_ids",),
)
