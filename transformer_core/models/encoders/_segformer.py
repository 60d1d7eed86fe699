"""SegFormer (Xie et al. 2021, arXiv:2105.15203): stages of overlapping patches, and a class of each place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from lang_core import ConfigError, DType, ExecutionContext, Module, Parameter, Repeated, Tensor, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import Size
from transformer_core.layers._feed_forward import FeedForward
from transformer_core.layers._linear import Linear
from transformer_core.layers._multi_head_attention import MultiHeadAttention, RopeTables
from transformer_core.layers._norm import LayerNorm
from transformer_core.models.encoders._stack import EncoderLayer, StackConfig, labels_of
from transformer_core.models.encoders._swin import stage_of
from transformer_core.models.encoders._vision import VisionConfig, VisionModel

_EPS: Final = 1e-5  # torch's default, whatever layer_norm_eps says


@dataclass(frozen=True, slots=True)
class Patches:
    """Convolution that begins a stage, and the ratio by which its layers shrink keys: taps, stride, ratio."""

    width: int
    stride: int
    ratio: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegformerConfig(VisionConfig):
    """Configuration of a SegFormer; further attributes as of ``VisionConfig``, ``stack`` is the last stage's.

    Attributes:
        stages: layers of each stage.
        patches: convolution of each stage.
        decoder: size of the decoder of a model that segments; 0 without.
    """

    stages: tuple[StackConfig, ...]
    patches: tuple[Patches, ...]
    decoder: int

    @property
    def depths(self) -> tuple[int, ...]:
        """Number of layers of each stage."""
        return tuple(stage.layers for stage in self.stages)

    @property
    def grids(self) -> list[Size]:
        """Rows and columns of each stage."""
        grids, (height, width) = list[Size](), self.image
        for part in self.patches:
            height, width = ((side + 2 * (part.width // 2) - part.width) // part.stride + 1 for side in (height, width))
            grids.append((height, width))
        return grids

    def first_layers(self, count: int) -> Self:
        """Returns the configuration itself: stages of different sizes are run whole.

        Raises:
            ConfigError: the number of layers is another one.
        """
        if count != self.layers:
            raise ConfigError(f"num_layers: expected {self.layers}, for a SegFormer runs all stages; found {count}")
        return self


class Conv2d(Module):
    """Convolution of x [B, rows, columns, in]; the weight [out, in / groups, taps, taps] lies as PyTorch has it."""

    def __init__(
        self, inputs: int, outputs: int, width: int, dtype: DType, *, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> None:
        self.weight = Parameter((outputs, inputs // groups, width, width), dtype)
        self.bias = Parameter((outputs,), dtype)
        self.stride, self.padding, self.groups = stride, padding, groups

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, rows, columns, in] to [B, rows', columns', out]."""
        kernel, side = ctx.ops.transpose(ctx.parameter(self.weight), (2, 3, 1, 0)), (self.padding, self.padding)
        y = ctx.ops.conv(x, kernel, (self.stride, self.stride), (side, side), groups=self.groups)
        return ctx.ops.add(y, ctx.parameter(self.bias))


class StagePatches(Module):
    """Overlapping patches of a grid, normed."""

    def __init__(self, config: SegformerConfig, index: int, dtype: DType) -> None:
        inputs = config.stages[index - 1].hidden if index else config.channels
        hidden, part = config.stages[index].hidden, config.patches[index]
        self.conv = Conv2d(inputs, hidden, part.width, dtype, stride=part.stride, padding=part.width // 2)
        self.norm = LayerNorm(hidden, eps=_EPS, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, rows, columns, in] to [B, T, D]."""
        x = self.conv(ctx, x)
        return self.norm(ctx, ctx.ops.reshape(x, (x.shape[0], x.shape[1] * x.shape[2], x.shape[3])))


class ReducedAttention(MultiHeadAttention):
    """Attention of a grid's tokens x [B, T, D] to squares of them."""

    def __init__(self, config: StackConfig, grid: Size, ratio: int, dtype: DType) -> None:
        super().__init__(config.hidden, config.heads, dtype=dtype)
        several = ratio > 1
        self.grid = grid
        self.reduction = Conv2d(config.hidden, config.hidden, ratio, dtype, stride=ratio) if several else None
        self.reduced_norm = LayerNorm(config.hidden, eps=_EPS, dtype=dtype) if several else None

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        key_places: Tensor | None = None,
    ) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; takes nothing else."""
        del tables, key_places
        seen = x
        if self.reduction is not None and self.reduced_norm is not None:
            seen = self.reduction(ctx, ctx.ops.reshape(x, (x.shape[0], *self.grid, x.shape[2])))
            seen = ctx.ops.reshape(seen, (x.shape[0], seen.shape[1] * seen.shape[2], x.shape[2]))
            seen = self.reduced_norm(ctx, seen)
        return self.attend(ctx, x, self.keys_values(ctx, seen), bias)


class MixedFeedForward(FeedForward):
    """Feed-forward with a convolution of each channel's neighbours before the activation."""

    def __init__(self, config: StackConfig, grid: Size, dtype: DType) -> None:
        super().__init__(config.hidden, config.intermediate, activation=config.activation, dtype=dtype)
        inner = config.intermediate
        self.grid, self.conv = grid, Conv2d(inner, inner, 3, dtype, padding=1, groups=inner)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; inside, [B, T, F]."""
        x = self.up_proj(ctx, x)
        mixed = self.conv(ctx, ctx.ops.reshape(x, (x.shape[0], *self.grid, x.shape[2])))
        return self.down_proj(ctx, self.activation(ctx, ctx.ops.reshape(mixed, x.shape)))


class SegmentHead(Module):
    """Joins all stages in the first one's grid: a class of each place."""

    def __init__(self, config: SegformerConfig, dtype: DType) -> None:
        size = config.decoder
        self.projections = Repeated(
            len(config.stages), lambda index: Linear(config.stages[index].hidden, size, bias=True, dtype=dtype)
        )
        self.fuse = Parameter((size, size * len(config.stages), 1, 1), dtype)
        self.means, self.variances, self.scale, self.bias = (Parameter((size,), dtype) for _ in range(4))
        self.classes = Conv2d(size, config.labels, 1, dtype)
        self.grids = config.grids

    def forward(self, ctx: ExecutionContext, stages: Sequence[Tensor]) -> Tensor:
        """Maps states [B, T, D] of each stage to logits [B, labels, rows, columns]."""
        ops, (rows, columns), parts = ctx.ops, self.grids[0], list[Tensor]()
        for projection, x, grid in zip(self.projections, stages, self.grids, strict=True):
            y = ops.cast(projection(ctx, x), f32)
            y = ops.reshape(y, (y.shape[0], *grid, y.shape[2]))
            down, across = (ops.constant(_bilinear(*sides)) for sides in zip(grid, (rows, columns), strict=True))
            y = ops.transpose(ops.dot_general(y, down, ((1,), (1,))), (0, 3, 1, 2))
            parts.append(ops.transpose(ops.dot_general(y, across, ((2,), (1,))), (0, 1, 3, 2)))
        fuse = ctx.parameter(self.fuse)
        whole = ops.cast(ops.concat(parts[::-1], 3), fuse.dtype)
        x = ops.cast(ops.linear(whole, ops.reshape(fuse, fuse.shape[:2])), f32)
        means, variances, scale, bias = (
            ops.cast(ctx.parameter(one), f32) for one in (self.means, self.variances, self.scale, self.bias)
        )
        x = ops.mul(ops.sub(x, means), ops.mul(scale, ops.rsqrt(ops.add(variances, _EPS))))
        x = ops.cast(ops.relu(ops.add(x, bias)), fuse.dtype)
        return ops.transpose(self.classes(ctx, x), (0, 3, 1, 2))


def _bilinear(old: int, new: int) -> np.ndarray:
    """Returns the weights f32 [new, old] of old values in new ones, as torch interpolates without aligned corners."""
    matrix = np.zeros((new, old), np.float32)
    for row in range(new):
        place = max(old / new * (row + 0.5) - 0.5, 0.0)
        first = min(int(place), old - 1)
        part = place - first if first + 1 < old else 0.0
        matrix[row, first] += 1 - part
        matrix[row, min(first + 1, old - 1)] += part
    return matrix


class SegformerModel(VisionModel):
    """SegFormer.

    ``forward(pixel_values [B,C,height,width])`` gives ``logits`` [B,labels,height/4,width/4] of a model that segments,
    or ``logits`` [B,labels] of a classifier.
    """

    def __init__(self, config: SegformerConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        own, stages, last = config, config.stages, config.stages[-1]
        self._segformer: Final = own
        self.patches = Repeated(len(stages), lambda index: StagePatches(own, index, self.dtype))
        self.layers = Repeated(own.layers, self._layer)
        self.norms = Repeated(len(stages), lambda index: LayerNorm(stages[index].hidden, eps=_EPS, dtype=self.dtype))
        classifies = own.labels and not own.decoder
        self.classifier = Linear(last.hidden, own.labels, bias=True, dtype=self.dtype) if classifies else None
        self.head = SegmentHead(own, self.dtype) if own.decoder else None

    def _layer(self, index: int) -> EncoderLayer:
        stage, _ = stage_of(self._segformer.depths, index)
        config, grid = self._segformer.stages[stage], self._segformer.grids[stage]
        layer = EncoderLayer(config, index, self.dtype)
        layer.self_attn = ReducedAttention(config, grid, self._segformer.patches[stage].ratio, self.dtype)
        layer.mlp = MixedFeedForward(config, grid, self.dtype)
        return layer

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to the results of ``forward``."""
        ops, depths, grids = ctx.ops, self._segformer.depths, self._segformer.grids
        x = ops.transpose(ops.cast(pixel_values, self.dtype), (0, 2, 3, 1))
        patches, norms, states = list(self.patches), list(self.norms), list[Tensor]()
        for index, layer in enumerate(self.layers):
            stage, place = stage_of(depths, index)
            x = x if place else patches[stage](ctx, x)
            with ctx.block(layer.path):
                x = layer(ctx, x)
            if place + 1 == depths[stage]:
                states.append(norms[stage](ctx, x))
                x = ops.reshape(states[-1], (x.shape[0], *grids[stage], x.shape[2]))
        if self.head is not None:
            return {"logits": ops.cast(self.head(ctx, states), f32)}
        assert self.classifier is not None
        return {"logits": ops.cast(self.classifier(ctx, ops.mean(states[-1], (1,))), f32)}


# transformers' defaults of the lists.
_LISTS: Final = {
    "depths": [2, 2, 2, 2],
    "sr_ratios": [8, 4, 2, 1],
    "hidden_sizes": [32, 64, 160, 256],
    "patch_sizes": [7, 3, 3, 3],
    "strides": [4, 2, 2, 2],
    "num_attention_heads": [1, 2, 5, 8],
    "mlp_ratios": [4, 4, 4, 4],
}
_MOST: Final = {"depths": 256, "hidden_sizes": 2**16, "num_attention_heads": 2**10}
_MOST_OTHERS: Final = 64


def _read(fields: ConfigFields, architecture: str) -> SegformerConfig:
    if not fields.boolean("reshape_last_stage", True):
        fields.refuse("reshape_last_stage", "true, or no such field")
    count = fields.integer("num_encoder_blocks", 4)
    lists = {name: _numbers(fields, name, known, count) for name, known in _LISTS.items()}
    activation, stages = activation_of(fields, default="gelu"), list[StackConfig]()
    for index in range(count):
        hidden, heads = lists["hidden_sizes"][index], lists["num_attention_heads"][index]
        if hidden % heads:
            fields.refuse("num_attention_heads", f"numbers that divide hidden_sizes; {heads} does not divide {hidden}")
        stages.append(
            StackConfig(
                hidden=hidden,
                intermediate=lists["mlp_ratios"][index] * hidden,
                layers=lists["depths"][index],
                heads=heads,
                norm_eps=_EPS,
                activation=activation,
            )
        )
    rows = zip(lists["patch_sizes"], lists["strides"], lists["sr_ratios"], strict=True)
    whole = int(np.prod(lists["strides"]))
    segments, side = architecture.endswith("SemanticSegmentation"), fields.integer("image_size", 512)
    config = SegformerConfig(
        architecture=architecture,
        stack=replace(stages[-1], layers=sum(lists["depths"])),
        stages=tuple(stages),
        patches=tuple(Patches(*row) for row in rows),
        decoder=fields.integer("decoder_hidden_size", 256) if segments else 0,
        image=(side, side),
        patch=(whole, whole),
        channels=fields.integer("num_channels", 3),
        labels=labels_of(fields),
        resizes="plain",
    )
    for grid, part in zip(config.grids, config.patches, strict=True):
        if min(grid) < part.ratio:
            fields.refuse("sr_ratios", f"at most the sides of all stages ({', '.join(map(str, config.grids))})")
    return config


def _numbers(fields: ConfigFields, name: str, default: list[int], count: int) -> list[int]:
    values, most = fields.values.get(name) or default, _MOST.get(name, _MOST_OTHERS)
    whole = isinstance(values, list) and len(values) == count
    if not whole or not all(type(value) is int and 1 <= value <= most for value in values):
        fields.refuse(name, f"a list of {count} integers of 1 to {most}, one of each stage (num_encoder_blocks)")
    return values


_NAMES: Final = {
    "patches.{}.conv": "segformer.encoder.patch_embeddings.{}.proj",
    "patches.{}.norm": "segformer.encoder.patch_embeddings.{}.layer_norm",
    "norms.{}": "segformer.encoder.layer_norm.{}",
    "head.projections.{}": "decode_head.linear_c.{}.proj",
    "head.fuse": "decode_head.linear_fuse.weight",
    "head.means": "decode_head.batch_norm.running_mean",
    "head.variances": "decode_head.batch_norm.running_var",
    "head.scale": "decode_head.batch_norm.weight",
    "head.bias": "decode_head.batch_norm.bias",
    "head.classes": "decode_head.classifier",
}
_LAYER: Final = {
    **{f"self_attn.{part[0]}_proj": f"attention.self.{part}" for part in ("query", "key", "value")},
    "self_attn.reduction": "attention.self.sr",
    "self_attn.reduced_norm": "attention.self.layer_norm",
    "self_attn.o_proj": "attention.output.dense",
    "attention_norm": "layer_norm_1",
    "mlp.up_proj": "mlp.dense1",
    "mlp.conv": "mlp.dwconv.dwconv",
    "mlp.down_proj": "mlp.dense2",
    "mlp_norm": "layer_norm_2",
}


def _keys(config: SegformerConfig) -> RenamedModules:
    names = dict(_NAMES)
    for index in range(config.layers):
        stage, place = stage_of(config.depths, index)
        block = f"segformer.encoder.block.{stage}.{place}"
        for ours, stored in _LAYER.items():
            names |= {f"layers.{index}.{ours}.{kind}": f"{block}.{stored}.{kind}" for kind in ("weight", "bias")}
    return RenamedModules(names)


def _family(architecture: str) -> ModelFamily[Any]:
    return ModelFamily(
        architecture,
        "segformer",
        lambda fields: _read(fields, architecture),
        SegformerModel,
        _keys,
        "*encoder.block.{}",
        ("classifier.*", "decode_head.*", "*num_batches_tracked"),
    )


SEGFORMER: Final = tuple(_family(f"Segformer{head}") for head in ("ForImageClassification", "ForSemanticSegmentation"))
