"""SigLIP (Zhai et al. 2023, arXiv:2303.15343): its vision model, alone or as half of a pair."""

from collections.abc import Mapping
from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, WeightSource, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Recipe, RecipeOf, RenamedModules, first_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import Embedding, PatchEmbedding
from transformer_core.layers._feed_forward import FeedForward
from transformer_core.layers._multi_head_attention import MultiHeadAttention
from transformer_core.models.encoders._stack import EncoderStack, StackConfig, layer_norm
from transformer_core.models.encoders._vision import (
    StackDefaults,
    VisionConfig,
    VisionModel,
    read_picture,
    read_stack,
)


class PoolingHead(Module):
    """Attention of one learned token to an image's tokens (Lee et al. 2019, arXiv:1810.00825)."""

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        self.probe = Parameter((1, 1, config.hidden), dtype)
        self.attention = MultiHeadAttention(config.hidden, config.heads, dtype=dtype)
        self.norm = layer_norm(config, dtype)
        self.mlp = FeedForward(config.hidden, config.intermediate, activation=config.activation, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, D] to [B, D]."""
        ops, (batch, _, size) = ctx.ops, x.shape
        probe = ops.broadcast(ctx.parameter(self.probe), (batch, 1, size))
        attended = self.attention.attend(ctx, probe, self.attention.keys_values(ctx, x))
        return ops.reshape(ops.add(attended, self.mlp(ctx, self.norm(ctx, attended))), (batch, size))


class VisionTower(Module):
    """Vision model: patches, positions, layers, a norm, and the head if the model has one.

    Args:
        config: sizes.
        dtype: dtype of the parameters.
        normed: whether the norm and the head are there.
    """

    def __init__(self, config: VisionConfig, dtype: DType, *, normed: bool = True) -> None:
        hidden = config.stack.hidden
        self.patches = PatchEmbedding(config.channels, hidden, config.patch, dtype=dtype)
        self.positions = Embedding(config.tokens, hidden, dtype=dtype, packable=False)
        self.encoder = EncoderStack(config.stack, dtype)
        self.norm = layer_norm(config.stack, dtype) if normed else None
        self.head = PoolingHead(config.stack, dtype) if config.pooled and normed else None

    def forward(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Maps pixel_values [B, C, height, width] to states [B, T, D]."""
        patches = self.patches(ctx, ctx.ops.cast(pixel_values, self.patches.weight.spec.dtype))
        x = self.encoder(ctx, ctx.ops.add(patches, ctx.parameter(self.positions.weight)))
        return x if self.norm is None else self.norm(ctx, x)


class SiglipVisionModel(VisionModel):
    """SigLIP's vision model.

    ``forward(pixel_values [B,C,height,width])`` gives ``last_hidden_state`` [B,T,D] and, of a model with its head,
    ``pooler_output`` [B,D].
    """

    def __init__(self, config: VisionConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.vision_model = VisionTower(self.config, self.dtype)

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to f32 [B, T, D], and [B, D] with a head."""
        x = self.vision_model(ctx, pixel_values)
        results = {"last_hidden_state": ctx.ops.cast(x, f32)}
        if self.vision_model.head is not None:
            results["pooler_output"] = ctx.ops.cast(self.vision_model.head(ctx, x), f32)
        return results


# transformers' defaults, for the config.json of a pair, in which fields may be absent.
_DEFAULTS: Final = StackDefaults(1e-6, "gelu_pytorch_tanh", 768, 3072, 12, 12, 224, 16)


def read_siglip_stack(fields: ConfigFields) -> StackConfig:
    """Reads the layers of the vision or the text model."""
    return read_stack(fields, _DEFAULTS)


def read_siglip_vision(fields: ConfigFields, architecture: str) -> VisionConfig:
    """Reads the vision model of a config.json."""
    stack = read_siglip_stack(fields)
    pooled = stack.hidden if fields.boolean("vision_use_head", True) else 0
    return VisionConfig(architecture=architecture, stack=stack, pooled=pooled, **read_picture(fields, _DEFAULTS))


def stack_names(ours: str, stored: str) -> dict[str, str]:
    """Returns the stored names of a stack's layers."""
    ours, stored = f"{ours}.layers.{{}}", f"{stored}.layers.{{}}"
    return {
        **{f"{ours}.self_attn.{part}_proj": f"{stored}.self_attn.{part}_proj" for part in "qkv"},
        f"{ours}.self_attn.o_proj": f"{stored}.self_attn.out_proj",
        f"{ours}.attention_norm": f"{stored}.layer_norm1",
        f"{ours}.mlp.up_proj": f"{stored}.mlp.fc1",
        f"{ours}.mlp.down_proj": f"{stored}.mlp.fc2",
        f"{ours}.mlp_norm": f"{stored}.layer_norm2",
    }


def vision_names(stored: str) -> dict[str, str]:
    """Returns the stored names of the vision model, below a prefix."""
    ours = "vision_model"
    return {
        **stack_names(f"{ours}.encoder", f"{stored}encoder"),
        f"{ours}.patches": f"{stored}embeddings.patch_embedding",
        f"{ours}.positions": f"{stored}embeddings.position_embedding",
        f"{ours}.norm": f"{stored}post_layernorm",
        f"{ours}.head.probe": f"{stored}head.probe",
        f"{ours}.head.attention.o_proj": f"{stored}head.attention.out_proj",
        f"{ours}.head.norm": f"{stored}head.layernorm",
        f"{ours}.head.mlp.up_proj": f"{stored}head.mlp.fc1",
        f"{ours}.head.mlp.down_proj": f"{stored}head.mlp.fc2",
        f"{_FUSED}.weight": f"{stored}head.attention.in_proj_weight",
        f"{_FUSED}.bias": f"{stored}head.attention.in_proj_bias",
    }


_FUSED: Final = "vision_model.head.attention.in_proj"
_PARTS: Final = {f"vision_model.head.attention.{part}_proj": place for place, part in enumerate("qkv")}


def with_fused_head(keys: RenamedModules) -> RecipeOf:
    """Returns recipes by name, and for the head's projections, which torch stores in one tensor."""

    def fused(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        module, _, kind = name.rpartition(".")
        if module not in _PARTS:
            return None
        start, key = _PARTS[module] * shape[0], keys.key(f"{_FUSED}.{kind}", source)
        return Cut(key, (3 * shape[0], *shape[1:]), 0, start, start + shape[0])

    return first_of(fused, keys)


_VISION: Final = with_fused_head(RenamedModules(vision_names(""), above=("vision_model.",)))

SIGLIP_VISION: Final[ModelFamily[Any]] = ModelFamily(
    "SiglipVisionModel",
    "siglip_vision_model",
    lambda fields: read_siglip_vision(fields, "SiglipVisionModel"),
    SiglipVisionModel,
    lambda config: _VISION,
    "*encoder.layers.{}",
    ("*embeddings.position_ids",),
)
