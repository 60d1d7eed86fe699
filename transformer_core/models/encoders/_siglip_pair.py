"""SigLIP: images and texts as vectors of one space (Zhai et al. 2023, arXiv:2303.15343)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from lang_core import Argument, DType, EntryPoint, ExecutionContext, Module, Parameter, Tensor, TensorSpec, f32
from transformer_core._config_fields import ConfigFields
from transformer_core._embedding import Embedding
from transformer_core._linear import Linear
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import Model, ModelFamily, check_size
from transformer_core.flow import CompileProfile
from transformer_core.models.encoders._siglip import (
    VisionTower,
    read_siglip_stack,
    read_siglip_vision,
    stack_names,
    vision_names,
    with_fused_head,
)
from transformer_core.models.encoders._stack import EncoderConfig, EncoderStack, encoder_profile, layer_norm
from transformer_core.models.encoders._vision import VisionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SiglipConfig(EncoderConfig):
    """Configuration of a SigLIP; further attributes as of ``EncoderConfig``, whose ``stack`` is the text model's.

    Attributes:
        vision: configuration of the vision model.
        vocabulary: V.
        positions: the most tokens of a text.
    """

    vision: VisionConfig
    vocabulary: int
    positions: int

    @property
    def layers(self) -> int:
        """The greater L of text model and vision model."""
        return max(self.stack.layers, self.vision.layers)

    @property
    def stored_layers(self) -> int:
        """L, as every stored layer is run."""
        return self.layers

    def first_layers(self, count: int) -> Self:
        """Returns the configuration with the first layers only, of both the text and the vision model."""
        text = replace(self.stack, layers=min(count, self.stack.layers))
        return replace(self, stack=text, vision=self.vision.first_layers(min(count, self.vision.layers)))

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        text = {"vocabulary": self.vocabulary, "positions": self.positions, **self.stack.facts()}
        return {**text, "layers": self.layers, "text_layers": self.stack.layers, "vision": self.vision.facts()}


class TextTower(Module):
    """Text model: tokens, positions, layers, a norm, and the head on the last token's state."""

    def __init__(self, config: SiglipConfig, dtype: DType) -> None:
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


class SiglipModel(Model[SiglipConfig]):
    """SigLIP: vectors of images and texts, close together for pairs that match.

    ``encode_image(pixel_values f32 [B,C,height,width])`` gives ``image_embeds`` [B,D], ``encode_text(token_ids [B,T])``
    gives ``text_embeds`` [B,D], all of length 1. Texts are padded to T, by default the greatest as
    in training; padding is not masked.

    ``forward(pixel_values, token_ids)`` gives both, and ``logits_per_image`` [B,B]: a row per image. Results are f32.
    """

    ENTRY_POINTS = ("forward", "encode_image", "encode_text")
    DEFAULT_ENTRY_POINTS = ("encode_image", "encode_text")

    def __init__(self, config: SiglipConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.vision_model = VisionTower(self.config.vision, self.dtype)
        self.text_model = TextTower(self.config, self.dtype)
        self.logit_scale, self.logit_bias = Parameter((1,), self.dtype), Parameter((1,), self.dtype)

    def encode_image(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Computes the results of the entry point of this name."""
        tower = self.vision_model
        assert tower.head is not None  # _read refuses a model without a head
        return {"image_embeds": _of_length_one(ctx, tower.head(ctx, tower(ctx, pixel_values)))}

    def encode_text(self, ctx: ExecutionContext, token_ids: Tensor) -> Mapping[str, Tensor]:
        """Computes the results of the entry point of this name."""
        return {"text_embeds": _of_length_one(ctx, self.text_model(ctx, token_ids))}

    def results(self, ctx: ExecutionContext, pixel_values: Tensor, token_ids: Tensor) -> Mapping[str, Tensor]:
        """Computes the results of the entry point ``forward``."""
        ops = ctx.ops
        images, texts = self.encode_image(ctx, pixel_values), self.encode_text(ctx, token_ids)
        alike = ops.dot_general(images["image_embeds"], texts["text_embeds"], ((1,), (1,)))
        scale, bias = (ops.cast(ctx.parameter(scalar), f32) for scalar in (self.logit_scale, self.logit_bias))
        return {**images, **texts, "logits_per_image": ops.add(ops.mul(alike, ops.exp(scale)), bias)}

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is the number of the text model's positions by default."""
        positions = self.config.positions
        tokens = positions if sequence is None else sequence
        check_size("batch", batch)
        check_size("sequence", tokens, positions, "the positions that have embeddings (max_position_embeddings)")
        return encoder_profile(batch, tokens, self.dtype)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds one of ``ENTRY_POINTS``."""
        vision = self.config.vision
        pixels = Argument("pixel_values", TensorSpec((profile.batch, vision.channels, *vision.image), "f32"))
        tokens = Argument("token_ids", TensorSpec((profile.batch, profile.sequence), "i32"))
        known: dict[str, tuple[Callable[..., Mapping[str, Tensor]], tuple[Argument, ...]]] = {
            "forward": (self.results, (pixels, tokens)),
            "encode_image": (self.encode_image, (pixels,)),
            "encode_text": (self.encode_text, (tokens,)),
        }
        return EntryPoint(profile.name, *known[profile.name])


def _of_length_one(ctx: ExecutionContext, x: Tensor) -> Tensor:
    """Scales the rows of x [B, D] to length 1, in f32."""
    return ctx.ops.l2_norm(ctx.ops.cast(x, f32), 0.0)


def _read(fields: ConfigFields) -> SiglipConfig:
    architecture, text = SIGLIP.architecture, fields.object("text_config")
    vision = read_siglip_vision(fields.object("vision_config"), architecture)
    stack = read_siglip_stack(text)
    if not vision.pooled:
        fields.object("vision_config").refuse("vision_use_head", "true: without the head an image has no vector")
    if text.integer("projection_size", stack.hidden) != vision.stack.hidden:
        text.refuse("projection_size", f"hidden_size of vision_config ({vision.stack.hidden})")
    return SiglipConfig(
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
