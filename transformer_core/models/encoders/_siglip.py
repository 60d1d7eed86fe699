"""SigLIP's vision model (Zhai et al. 2023, arXiv:2303.15343)."""

from collections.abc import Mapping
from typing import Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, WeightSource, f32
from transformer_core._config_fields import ConfigFields
from transformer_core._embedding import Embedding
from transformer_core._feed_forward import FeedForward
from transformer_core._multi_head_attention import MultiHeadAttention
from transformer_core._patch_embedding import PatchEmbedding
from transformer_core.checkpoints import Cut, Recipe, RenamedModules, first_of
from transformer_core.models._model import ModelFamily
from transformer_core.models.encoders._stack import EncoderStack, StackConfig, layer_norm
from transformer_core.models.encoders._vision import VisionConfig, VisionModel, read_picture, read_stack


class PoolingHead(Module):
    """What one learned token sees of a picture (Lee et al. 2019, arXiv:1810.00825)."""

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        self.probe = Parameter((1, 1, config.hidden), dtype)
        self.attention = MultiHeadAttention(config.hidden, config.heads, dtype=dtype)
        self.norm = layer_norm(config, dtype)
        self.mlp = FeedForward(config.hidden, config.intermediate, activation=config.activation, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """x [B, T, D]: [B, D]."""
        ops, (batch, _, size) = ctx.ops, x.shape
        probe = ops.broadcast(ctx.parameter(self.probe), (batch, 1, size))
        seen = self.attention.attend(ctx, probe, self.attention.keys_values(ctx, x))
        return ops.reshape(ops.add(seen, self.mlp(ctx, self.norm(ctx, seen))), (batch, size))


class SiglipVisionModel(VisionModel):
    """SigLIP's vision model.

    ``forward(pixel_values [B,C,height,width])`` gives ``last_hidden_state`` [B,T,D] and, of a model with its head,
    ``pooler_output`` [B,D].
    """

    def __init__(self, config: VisionConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config, hidden = self.config, self.config.stack.hidden
        self.patches = PatchEmbedding(config.channels, hidden, config.patch, dtype=self.dtype)
        self.positions = Embedding(config.tokens, hidden, dtype=self.dtype)
        self.encoder = EncoderStack(config.stack, self.dtype)
        self.norm = layer_norm(config.stack, self.dtype)
        self.head = PoolingHead(config.stack, self.dtype) if config.pooled else None

    def forward(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """pixel_values [B, C, height, width]: the normed states [B, T, D]."""
        patches = self.patches(ctx, ctx.ops.cast(pixel_values, self.dtype))
        x = ctx.ops.add(patches, ctx.parameter(self.positions.weight))
        return self.norm(ctx, self.encoder(ctx, x))

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Those of the entry point ``forward``."""
        x = self(ctx, pixel_values)
        results = {"last_hidden_state": ctx.ops.cast(x, f32)}
        if self.head is not None:
            results["pooler_output"] = ctx.ops.cast(self.head(ctx, x), f32)
        return results


def _read(fields: ConfigFields) -> VisionConfig:
    stack = read_stack(fields, norm_eps=1e-6, activation="gelu_pytorch_tanh")
    pooled = stack.hidden if fields.boolean("vision_use_head", True) else 0
    return VisionConfig(architecture=SIGLIP_VISION.architecture, stack=stack, pooled=pooled, **read_picture(fields))


_LAYER: Final = "encoder.layers.{}."
_KEYS: Final = RenamedModules(
    {
        "patches": "embeddings.patch_embedding",
        "positions": "embeddings.position_embedding",
        f"{_LAYER}self_attn.o_proj": "encoder.layers.{}.self_attn.out_proj",
        f"{_LAYER}attention_norm": "encoder.layers.{}.layer_norm1",
        f"{_LAYER}mlp.up_proj": "encoder.layers.{}.mlp.fc1",
        f"{_LAYER}mlp.down_proj": "encoder.layers.{}.mlp.fc2",
        f"{_LAYER}mlp_norm": "encoder.layers.{}.layer_norm2",
        "norm": "post_layernorm",
        "head.attention.o_proj": "head.attention.out_proj",
        "head.norm": "head.layernorm",
        "head.mlp.up_proj": "head.mlp.fc1",
        "head.mlp.down_proj": "head.mlp.fc2",
    },
    above=("vision_model.",),
)
_FUSED: Final = {f"head.attention.{part}_proj": place for place, part in enumerate("qkv")}


def _fused(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """The head's projections lie one after the other in ``in_proj_weight`` and ``in_proj_bias``, as torch has them."""
    module, _, kind = name.rpartition(".")
    if module not in _FUSED:
        return None
    start = _FUSED[module] * shape[0]
    key = _KEYS.key(f"head.attention.in_proj_{kind}", source)
    return Cut(key, (3 * shape[0], *shape[1:]), 0, start, start + shape[0])


SIGLIP_VISION: Final = ModelFamily(
    "SiglipVisionModel",
    "siglip_vision_model",
    _read,
    SiglipVisionModel,
    lambda config: first_of(_fused, _KEYS),
    "*encoder.layers.{}",
    ("*embeddings.position_ids",),
)
