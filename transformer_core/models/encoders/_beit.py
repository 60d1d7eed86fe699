"""BEiT (Bao et al. 2021, arXiv:2106.08254): a ViT with biases of scores by distance, and layer scales."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from lang_core import DType, ExecutionContext, Parameter, Repeated, Tensor, checked_choices, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import PatchEmbedding
from transformer_core.layers._linear import Linear
from transformer_core.models.encoders._stack import EncoderLayer, labels_of, layer_norm
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, VisionModel, read_picture, read_stack


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class BeitConfig(VisionConfig):
    """Configuration of a BEiT; further attributes as of ``VisionConfig``.

    Attributes:
        positions: whether there are learned positions.
        biased: whether each layer has biases of its own by the distance of patches.
        shared: whether there are such biases for all layers.
        mean: whether the mean of the patches is the vector of a picture, or the class token.
    """

    positions: bool
    biased: bool
    shared: bool
    mean: bool


class BeitLayer(EncoderLayer):
    """Layer that may have a table of biases by the distance of patches."""

    def __init__(self, config: BeitConfig, index: int, dtype: DType) -> None:
        super().__init__(config.stack, index, dtype)
        self.table = _table(config, dtype) if config.biased else None


class BeitModel(VisionModel):
    """BEiT.

    ``forward(pixel_values [B,C,height,width])`` gives ``logits`` [B,labels] of a classifier, or ``last_hidden_state``
    [B,T,D], the class token first, and ``pooler_output`` [B,D].
    """

    def __init__(self, config: BeitConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        own, hidden = self.config, self.config.stack.hidden
        assert isinstance(own, BeitConfig)
        self._beit: Final = own
        self.class_token = Parameter((1, 1, hidden), self.dtype)
        self.positions = Parameter((1, own.tokens, hidden), self.dtype) if own.positions else None
        self.patches = PatchEmbedding(own.channels, hidden, own.patch, dtype=self.dtype)
        self.table = _table(own, self.dtype) if own.shared else None
        self.layers = Repeated(own.layers, lambda index: BeitLayer(own, index, self.dtype))
        self.norm = layer_norm(own.stack, self.dtype)
        self.classifier = Linear(hidden, own.labels, bias=True, dtype=self.dtype) if own.labels else None

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to f32 logits [B, labels], or [B, T, D] and [B, D]."""
        ops, config = ctx.ops, self._beit
        patches = self.patches(ctx, ops.cast(pixel_values, self.dtype))
        batch, _, hidden = patches.shape
        x = ops.concat([ops.broadcast(ctx.parameter(self.class_token), (batch, 1, hidden)), patches], 1)
        if self.positions is not None:
            x = ops.add(x, ctx.parameter(self.positions))
        shared = None if self.table is None else _biases(ctx, self.table, config)
        for layer in self.layers:
            assert isinstance(layer, BeitLayer)
            with ctx.block(layer.path):
                own = None if layer.table is None else _biases(ctx, layer.table, config)
                parts = [part for part in (own, shared) if part is not None]
                x = layer(ctx, x, ops.add(*parts) if len(parts) > 1 else next(iter(parts), None))
        if config.mean:
            pooled = self.norm(ctx, ops.mean(ops.slice_axis(x, 1, 1, x.shape[1]), (1,)))
        else:
            x = self.norm(ctx, x)
            pooled = ops.reshape(ops.slice_axis(x, 1, 0, 1), (batch, hidden))
        if self.classifier is not None:
            return {"logits": ops.cast(self.classifier(ctx, pooled), f32)}
        return {"last_hidden_state": ops.cast(x, f32), "pooler_output": ops.cast(pooled, f32)}


def _table(config: BeitConfig, dtype: DType) -> Parameter:
    rows, columns = config.grid
    return Parameter(((2 * rows - 1) * (2 * columns - 1) + 3, config.stack.heads), dtype)


def _biases(ctx: ExecutionContext, table: Parameter, config: BeitConfig) -> Tensor:
    """Returns the biases of scores f32 [1, N, 1, T, T]."""
    ops, (distances, heads), tokens = ctx.ops, table.spec.shape, config.tokens
    places = ops.constant(_distances(*config.grid, distances).astype(np.int32))
    rows = ops.take(ops.cast(ctx.parameter(table), f32), places, 0)  # [T, T, N]
    return ops.reshape(ops.transpose(rows, (2, 0, 1)), (1, heads, 1, tokens, tokens))


def _distances(rows: int, columns: int, count: int) -> np.ndarray:
    """Returns the row of the table [T, T] for each query and key; the last three are those of the class token."""
    down, across = (axis.reshape(-1) for axis in np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
    apart = [axis[:, None] - axis[None, :] for axis in (down, across)]
    places = np.zeros((rows * columns + 1,) * 2, np.int64)
    places[1:, 1:] = (apart[0] + rows - 1) * (2 * columns - 1) + apart[1] + columns - 1
    places[0, :], places[:, 0], places[0, 0] = count - 3, count - 2, count - 1
    return places


_DEFAULTS: Final = StackDefaults(1e-12, "gelu", 768, 3072, 12, 12, 224, 16)


def _read(fields: ConfigFields, architecture: str) -> BeitConfig:
    scaled = fields.number("layer_scale_init_value", 0.1, above=-1.0) > 0
    stack = replace(read_stack(fields, _DEFAULTS), key_bias=False, layer_scale=scaled)
    picture, classifies = read_picture(fields, _DEFAULTS), architecture == "BeitForImageClassification"
    if len(set(picture["image"])) > 1 or len(set(picture["patch"])) > 1:
        fields.refuse("image_size", "a square of square patches")
    return BeitConfig(
        architecture=architecture,
        stack=stack,
        first_tokens=1,
        pooled=0 if classifies else stack.hidden,
        labels=labels_of(fields) if classifies else 0,
        positions=fields.boolean("use_absolute_position_embeddings", False),
        biased=fields.boolean("use_relative_position_bias", False),
        shared=fields.boolean("use_shared_relative_position_bias", False),
        mean=fields.boolean("use_mean_pooling", True),
        **picture,
    )


_LAYER: Final = "encoder.layer.{}."
_TABLE: Final = "relative_position_bias.relative_position_bias_table"


def _keys(config: BeitConfig) -> RenamedModules:
    return RenamedModules(
        {
            "class_token": "embeddings.cls_token",
            "positions": "embeddings.position_embeddings",
            "patches": "embeddings.patch_embeddings.projection",
            "table": f"encoder.{_TABLE}",
            "norm": "pooler.layernorm" if config.mean else "layernorm",
            "layers.{}.table": f"{_LAYER}attention.attention.{_TABLE}",
            "layers.{}.self_attn.q_proj": f"{_LAYER}attention.attention.query",
            "layers.{}.self_attn.k_proj": f"{_LAYER}attention.attention.key",
            "layers.{}.self_attn.v_proj": f"{_LAYER}attention.attention.value",
            "layers.{}.self_attn.o_proj": f"{_LAYER}attention.output.dense",
            "layers.{}.attention_norm": f"{_LAYER}layernorm_before",
            "layers.{}.mlp_norm": f"{_LAYER}layernorm_after",
            "layers.{}.mlp.up_proj": f"{_LAYER}intermediate.dense",
            "layers.{}.mlp.down_proj": f"{_LAYER}output.dense",
            "layers.{}.attention_scale": f"{_LAYER}lambda_1",
            "layers.{}.mlp_scale": f"{_LAYER}lambda_2",
        },
        above=("beit.",),
    )


def _family(architecture: str) -> ModelFamily[Any]:
    return ModelFamily(
        architecture,
        "beit",
        lambda fields: _read(fields, architecture),
        BeitModel,
        _keys,
        "*encoder.layer.{}",
        ("*embeddings.mask_token", "classifier.*", "*relative_position_index"),
    )


BEIT: Final = (_family("BeitModel"), _family("BeitForImageClassification"))
