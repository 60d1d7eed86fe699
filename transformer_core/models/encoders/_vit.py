"""Vision transformer (Dosovitskiy et al. 2020, arXiv:2010.11929)."""

from collections.abc import Mapping
from typing import Any, Final

from lang_core import DType, ExecutionContext, Parameter, Tensor, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import PatchEmbedding
from transformer_core.layers._linear import Linear
from transformer_core.models.encoders._stack import EncoderStack, labels_of, layer_norm
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, VisionModel, read_picture, read_stack


class ViTModel(VisionModel):
    """Vision transformer without a head.

    ``forward(pixel_values [B,C,height,width])`` gives ``last_hidden_state`` [B,T,D], the class token first, and
    ``pooler_output`` [B,D'].
    """

    def __init__(self, config: VisionConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config, hidden = self.config, self.config.stack.hidden
        self.class_token = Parameter((1, 1, hidden), self.dtype)
        self.positions = Parameter((1, config.tokens, hidden), self.dtype)
        self.patches = PatchEmbedding(config.channels, hidden, config.patch, dtype=self.dtype)
        self.encoder = EncoderStack(config.stack, self.dtype)
        self.norm = layer_norm(config.stack, self.dtype)
        self.pooler = Linear(hidden, config.pooled, bias=True, dtype=self.dtype) if config.pooled else None
        self.classifier = Linear(hidden, config.labels, bias=True, dtype=self.dtype) if config.labels else None

    def forward(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Maps pixel_values [B, C, height, width] to normed states [B, T, D]."""
        ops = ctx.ops
        patches = self.patches(ctx, ops.cast(pixel_values, self.dtype))
        first = ops.broadcast(ctx.parameter(self.class_token), (patches.shape[0], 1, patches.shape[2]))
        x = ops.add(ops.concat([first, patches], 1), ctx.parameter(self.positions))
        return self.norm(ctx, self.encoder(ctx, x))

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to f32 logits [B, labels], or [B, T, D] and [B, D]."""
        ops = ctx.ops
        x = self(ctx, pixel_values)
        first = ops.reshape(ops.slice_axis(x, 1, 0, 1), (x.shape[0], x.shape[2]))
        if self.classifier is not None:
            return {"logits": ops.cast(self.classifier(ctx, first), f32)}
        results = {"last_hidden_state": ops.cast(x, f32)}
        if self.pooler is not None:
            results["pooler_output"] = ops.cast(ops.tanh(self.pooler(ctx, first)), f32)
        return results


class ViTForImageClassification(ViTModel):
    """Vision transformer with a classifier: ``forward`` gives ``logits`` [B,labels]."""


_DEFAULTS: Final = StackDefaults(norm_eps=1e-12, activation="gelu")


def _read(fields: ConfigFields, architecture: str, *, classifies: bool) -> VisionConfig:
    bias = fields.boolean("qkv_bias", True)
    stack = read_stack(fields, _DEFAULTS, qkv_bias=bias)
    head: dict[str, Any] = (
        {"labels": labels_of(fields)} if classifies else {"pooled": fields.integer("pooler_output_size", stack.hidden)}
    )
    if not classifies:
        fields.choice("pooler_act", ("tanh",), "tanh")
    return VisionConfig(
        architecture=architecture, stack=stack, first_tokens=1, **read_picture(fields, _DEFAULTS), **head
    )


_LAYER: Final = "encoder.layers.{}."
_STORED: Final = {
    "class_token": "embeddings.cls_token",
    "positions": "embeddings.position_embeddings",
    "patches": "embeddings.patch_embeddings.projection",
    f"{_LAYER}self_attn.q_proj": "encoder.layer.{}.attention.attention.query",
    f"{_LAYER}self_attn.k_proj": "encoder.layer.{}.attention.attention.key",
    f"{_LAYER}self_attn.v_proj": "encoder.layer.{}.attention.attention.value",
    f"{_LAYER}self_attn.o_proj": "encoder.layer.{}.attention.output.dense",
    f"{_LAYER}attention_norm": "encoder.layer.{}.layernorm_before",
    f"{_LAYER}mlp.up_proj": "encoder.layer.{}.intermediate.dense",
    f"{_LAYER}mlp.down_proj": "encoder.layer.{}.output.dense",
    f"{_LAYER}mlp_norm": "encoder.layer.{}.layernorm_after",
    "norm": "layernorm",
    "pooler": "pooler.dense",
}
VIT_KEYS: Final = RenamedModules(_STORED, above=("vit.",))
_ANY_LAYER: Final = "*encoder.layer.{}"

VIT: Final = ModelFamily(
    "ViTModel",
    "vit",
    lambda fields: _read(fields, "ViTModel", classifies=False),
    ViTModel,
    lambda config: VIT_KEYS,
    _ANY_LAYER,
    ("classifier.*",),
)
VIT_FOR_IMAGE_CLASSIFICATION: Final = ModelFamily(
    "ViTForImageClassification",
    "vit",
    lambda fields: _read(fields, "ViTForImageClassification", classifies=True),
    ViTForImageClassification,
    lambda config: VIT_KEYS,
    _ANY_LAYER,
    ("*pooler.dense.*",),
)
