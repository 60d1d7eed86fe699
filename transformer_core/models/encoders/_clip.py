"""CLIP (Radford et al. 2021, arXiv:2103.00020): images and texts as vectors of one space."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, checked_choices, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import Embedding, PatchEmbedding
from transformer_core.layers._linear import Linear
from transformer_core.layers._logits import row_of
from transformer_core.layers._masks import causal_mask, mask_bias
from transformer_core.models.encoders._pair import PairConfig, PairModel
from transformer_core.models.encoders._siglip import stack_names
from transformer_core.models.encoders._stack import EncoderStack, layer_norm
from transformer_core.models.encoders._vision import (
    StackDefaults,
    VisionConfig,
    VisionModel,
    read_picture,
    read_stack,
)


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class ClipConfig(PairConfig):
    """Configuration of a CLIP; further attributes as of ``PairConfig``.

    Attributes:
        projected: size of the vectors of images and texts.
        end: id of the token with a text's vector as state; None for the greatest id of the text.
    """

    projected: int
    end: int | None


class ClipVisionTower(Module):
    """Vision model: a class token, patches, positions, a norm and the layers.

    Args:
        config: sizes.
        dtype: dtype of the parameters.
        normed: whether there is the norm of ``pooled``.
    """

    def __init__(self, config: VisionConfig, dtype: DType, *, normed: bool = True) -> None:
        hidden = config.stack.hidden
        self.class_token = Parameter((hidden,), dtype)
        self.patches = PatchEmbedding(config.channels, hidden, config.patch, bias=False, dtype=dtype)
        self.positions = Embedding(config.tokens, hidden, dtype=dtype, packable=False)
        self.first_norm = layer_norm(config.stack, dtype)
        self.encoder = EncoderStack(config.stack, dtype)
        self.norm = layer_norm(config.stack, dtype) if normed else None

    def forward(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Maps pixel_values [B, C, height, width] to states [B, T, D], which are not normed."""
        ops = ctx.ops
        patches = self.patches(ctx, ops.cast(pixel_values, self.patches.weight.spec.dtype))
        first = ops.broadcast(ctx.parameter(self.class_token), (patches.shape[0], 1, patches.shape[2]))
        x = ops.add(ops.concat([first, patches], 1), ctx.parameter(self.positions.weight))
        return self.encoder(ctx, self.first_norm(ctx, x))

    def pooled(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps states x [B, T, D] to the class token's, normed: [B, D]."""
        first = ctx.ops.reshape(ctx.ops.slice_axis(x, 1, 0, 1), (x.shape[0], x.shape[2]))
        return first if self.norm is None else self.norm(ctx, first)


class ClipTextTower(Module):
    """Text model: tokens, positions, layers in which a token sees those before it, and a norm."""

    def __init__(self, config: ClipConfig, dtype: DType) -> None:
        hidden = config.stack.hidden
        self.end = config.end
        self.tokens = Embedding(config.vocabulary, hidden, dtype=dtype)
        self.positions = Embedding(config.positions, hidden, dtype=dtype)
        self.encoder = EncoderStack(config.stack, dtype)
        self.norm = layer_norm(config.stack, dtype)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Maps token_ids i32 [B, T] to the state [B, D] of the token that ends each text."""
        ops, tokens = ctx.ops, token_ids.shape[1]
        x = ops.add(self.tokens(ctx, token_ids), self.positions(ctx, ops.iota((tokens,))))
        x = self.norm(ctx, self.encoder(ctx, x, mask_bias(ctx, causal_mask(ctx, tokens, tokens))))
        ends = token_ids if self.end is None else ops.cast(ops.equal(token_ids, self.end), "i32")
        return row_of(ctx, x, ops.argmax(ends, -1))


class ClipModel(PairModel):
    """CLIP: a ``PairModel``. Tokens after the end of a text are ignored, padding or not."""

    def __init__(self, config: ClipConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        own = self.config
        assert isinstance(own, ClipConfig)
        vision, text, projected = own.vision, own.stack, own.projected
        self.vision_model = ClipVisionTower(vision, self.dtype)
        self.text_model = ClipTextTower(own, self.dtype)
        self.visual_projection = Linear(vision.stack.hidden, projected, dtype=self.dtype)
        self.text_projection = Linear(text.hidden, projected, dtype=self.dtype)
        self.logit_scale = Parameter((), self.dtype)

    @property
    def vector_size(self) -> int:
        """D, the size of vectors."""
        own = self.config
        assert isinstance(own, ClipConfig)
        return own.projected

    def image_vectors(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Maps pixel_values [B, C, height, width] to vectors [B, D] of any length."""
        tower = self.vision_model
        return self.visual_projection(ctx, tower.pooled(ctx, tower(ctx, pixel_values)))

    def text_vectors(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Maps token_ids i32 [B, T] to vectors [B, D] of any length."""
        return self.text_projection(ctx, self.text_model(ctx, token_ids))

    def scored(self, ctx: ExecutionContext, alike: Tensor) -> Tensor:
        """Maps cosines f32 [B, B] to logits."""
        return ctx.ops.mul(alike, ctx.ops.exp(ctx.ops.cast(ctx.parameter(self.logit_scale), f32)))


class ClipVisionModel(VisionModel):
    """CLIP's vision model.

    ``forward(pixel_values [B,C,height,width])`` gives ``last_hidden_state`` [B,T,D], the class token first, and
    ``pooler_output`` [B,D], its state normed.
    """

    def __init__(self, config: VisionConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.vision_model = ClipVisionTower(self.config, self.dtype)

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Computes the results of ``forward`` of pixel_values f32 [B, C, height, width]: f32 [B, T, D] and [B, D]."""
        x = self.vision_model(ctx, pixel_values)
        pooled = self.vision_model.pooled(ctx, x)
        return {"last_hidden_state": ctx.ops.cast(x, f32), "pooler_output": ctx.ops.cast(pooled, f32)}


# transformers' defaults, for the config.json of a pair, in which fields may be absent.
_VISION: Final = StackDefaults(1e-5, "quick_gelu", 768, 3072, 12, 12, 224, 32)
_TEXT: Final = StackDefaults(1e-5, "quick_gelu", 512, 2048, 12, 8)
_OLD_END: Final = 2  # eos_token_id of files in which it is wrong: the greatest id of the text counts


def _read(fields: ConfigFields) -> ClipConfig:
    text = _inner(fields, "text_config")
    end = text.integer("eos_token_id", 49407, minimum=0)
    return ClipConfig(
        architecture="CLIPModel",
        stack=read_stack(text, _TEXT),
        vision=read_clip_vision(_inner(fields, "vision_config"), "CLIPModel"),
        vocabulary=text.integer("vocab_size", 49408),
        positions=text.integer("max_position_embeddings", 77),
        projected=fields.integer("projection_dim", 512),
        end=None if end == _OLD_END else end,
    )


def _inner(fields: ConfigFields, name: str) -> ConfigFields:
    """Returns an inner configuration, which old files have twice.

    Raises:
        ConfigError: the two differ.
    """
    inner = fields.object(name) if fields.has(name) else ConfigFields({}, f"{fields.where}: {name}")
    twice = fields.values.get(f"{name}_dict")
    if isinstance(twice, Mapping) and any(inner.values.get(key) != value for key, value in twice.items()):
        fields.refuse(f"{name}_dict", f"the same as {name}, or no such field")
    return inner


def read_clip_vision(fields: ConfigFields, architecture: str) -> VisionConfig:
    """Reads the vision model of a config.json."""
    stack, picture = read_stack(fields, _VISION), read_picture(fields, _VISION)
    for name in ("image", "patch"):
        if len(set(picture[name])) > 1:
            fields.refuse(f"{name}_size", "a square")
    return VisionConfig(architecture=architecture, stack=stack, first_tokens=1, pooled=stack.hidden, **picture)


def clip_vision_names(stored: str) -> dict[str, str]:
    """Returns the stored names of the vision model, below a prefix."""
    return {
        **stack_names("vision_model.encoder", f"{stored}encoder"),
        "vision_model.class_token": f"{stored}embeddings.class_embedding",
        "vision_model.patches": f"{stored}embeddings.patch_embedding",
        "vision_model.positions": f"{stored}embeddings.position_embedding",
        "vision_model.first_norm": f"{stored}pre_layrnorm",
        "vision_model.norm": f"{stored}post_layernorm",
    }


_KEYS: Final = RenamedModules(
    {
        **clip_vision_names("vision_model."),
        **stack_names("text_model.encoder", "text_model.encoder"),
        "text_model.tokens": "text_model.embeddings.token_embedding",
        "text_model.positions": "text_model.embeddings.position_embedding",
        "text_model.norm": "text_model.final_layer_norm",
    }
)
_VISION_KEYS: Final = RenamedModules(clip_vision_names(""), above=("vision_model.",))
_LAYER: Final = "*encoder.layers.{}"
_BUFFERS: Final = ("*embeddings.position_ids",)

CLIP: Final[ModelFamily[Any]] = ModelFamily(
    "CLIPModel", "clip", _read, ClipModel, lambda config: _KEYS, _LAYER, _BUFFERS
)
CLIP_VISION: Final[ModelFamily[Any]] = ModelFamily(
    "CLIPVisionModel",
    "clip_vision_model",
    lambda fields: read_clip_vision(fields, "CLIPVisionModel"),
    ClipVisionModel,
    lambda config: _VISION_KEYS,
    _LAYER,
    (*_BUFFERS, "text_model.*", "*_projection.*", "logit_scale"),
)
