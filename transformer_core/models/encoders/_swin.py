"""Swin (Liu et al. 2021, arXiv:2103.14030): attention within windows that shift, and patches merged between stages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from lang_core import ConfigError, DType, ExecutionContext, Module, Parameter, Repeated, Tensor, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import PatchEmbedding, Size
from transformer_core.layers._linear import Linear
from transformer_core.layers._multi_head_attention import MultiHeadAttention, RopeTables
from transformer_core.layers._norm import LayerNorm
from transformer_core.models.encoders._stack import EncoderLayer, StackConfig, labels_of
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, VisionModel, read_picture

_HIDDEN: Final = -100.0  # what transformers adds to scores of tokens that lay apart before the shift
_EPS: Final = 1e-5  # torch's default, of the norms of patches


@dataclass(frozen=True, slots=True, kw_only=True)
class SwinConfig(VisionConfig):
    """Configuration of a Swin; further attributes as of ``VisionConfig``, ``stack`` is the last stage's.

    Attributes:
        stages: layers of each stage.
        depths: number of layers of each stage.
        window: side of a window, in patches.
        positions: whether patches have learned positions.
    """

    stages: tuple[StackConfig, ...]
    depths: tuple[int, ...]
    window: int
    positions: bool

    def first_layers(self, count: int) -> Self:
        """Returns the configuration itself: stages of different sizes are run whole.

        Raises:
            ConfigError: the number of layers is another one.
        """
        if count != self.layers:
            raise ConfigError(f"num_layers: expected {self.layers}, for a Swin runs all stages; found {count}")
        return self


class WindowAttention(MultiHeadAttention):
    """Attention of x [B, T, D] within windows of a grid, which may be shifted, with biases by distance."""

    def __init__(self, config: StackConfig, grid: Size, window: int, shift: int, dtype: DType) -> None:
        super().__init__(config.hidden, config.heads, qkv_bias=config.qkv_bias, dtype=dtype)
        self.table = Parameter(((2 * window - 1) ** 2, config.heads), dtype)
        self.grid, self.window, self.shift = grid, window, shift
        self.places = _distances(window)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        key_places: Tensor | None = None,
    ) -> Tensor:
        """Maps x [B, T, D] to [B, T, D]; takes nothing else."""
        assert bias is None and tables is None and key_places is None  # noqa: PT018 - a stage gives none
        ops, (height, width), side = ctx.ops, self.grid, self.window
        batch, tokens, hidden = x.shape
        down, across = -height % side, -width % side
        x = ops.reshape(x, (batch, height, width, hidden))
        x = ops.pad(x, (0, 0, 0, 0), (0, down, across, 0)) if down or across else x
        rows, columns = (height + down) // side, (width + across) // side
        x = self._rolled(ctx, x, self.shift)
        x = ops.transpose(ops.reshape(x, (batch, rows, side, columns, side, hidden)), (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (batch * rows * columns, side * side, hidden))
        x = self.attend(ctx, x, self.keys_values(ctx, x), self._bias(ctx, batch, rows, columns))
        x = ops.transpose(ops.reshape(x, (batch, rows, columns, side, side, hidden)), (0, 1, 3, 2, 4, 5))
        x = self._rolled(ctx, ops.reshape(x, (batch, rows * side, columns * side, hidden)), -self.shift)
        return ops.reshape(ops.slice(x, (0, 0, 0, 0), (batch, height, width, hidden)), (batch, tokens, hidden))

    def _rolled(self, ctx: ExecutionContext, x: Tensor, shift: int) -> Tensor:
        """Moves x [B, R, C, D] up and to the left by ``shift``; what leaves comes in at the other side."""
        for axis in (1, 2) if shift else ():
            size, first = x.shape[axis], shift % x.shape[axis]
            parts = ctx.ops.slice_axis(x, axis, first, size), ctx.ops.slice_axis(x, axis, 0, first)
            x = ctx.ops.concat(parts, axis)
        return x

    def _bias(self, ctx: ExecutionContext, batch: int, rows: int, columns: int) -> Tensor:
        """Returns the biases f32 [B windows, N, 1, T, T]; [1, N, 1, T, T] without a shift."""
        ops, tokens = ctx.ops, self.window**2
        table = ops.take(ops.cast(ctx.parameter(self.table), f32), ops.constant(self.places), 0)  # [T, T, N]
        table = ops.reshape(ops.transpose(table, (2, 0, 1)), (1, self.heads, 1, tokens, tokens))
        if not self.shift:
            return table
        hidden = ops.constant(np.tile(_apart(rows, columns, self.window, self.shift), (batch, 1, 1)))
        return ops.add(table, ops.reshape(hidden, (hidden.shape[0], 1, 1, tokens, tokens)))


def _distances(side: int) -> np.ndarray:
    """Returns the row of the table i32 [T, T] for each query and key of a window."""
    down, across = (axis.reshape(-1) for axis in np.meshgrid(np.arange(side), np.arange(side), indexing="ij"))
    apart = [axis[:, None] - axis[None, :] + side - 1 for axis in (down, across)]
    return (apart[0] * (2 * side - 1) + apart[1]).astype(np.int32)


def _apart(rows: int, columns: int, side: int, shift: int) -> np.ndarray:
    """Returns f32 [windows, T, T] that hides keys that lay elsewhere before the shift."""
    regions = [
        (np.arange(size) >= size - side).astype(int) + (np.arange(size) >= size - shift)
        for size in (rows * side, columns * side)
    ]
    region = (regions[0][:, None] * 3 + regions[1]).reshape(rows, side, columns, side)
    region = region.transpose(0, 2, 1, 3).reshape(rows * columns, -1)
    return np.where(region[:, :, None] == region[:, None, :], 0.0, _HIDDEN).astype(np.float32)


class PatchMerging(Module):
    """Joins squares of four patches: a norm and a matrix [2 D, 4 D]."""

    def __init__(self, hidden: int, dtype: DType) -> None:
        self.norm = LayerNorm(4 * hidden, eps=_EPS, dtype=dtype)
        self.reduction = Linear(4 * hidden, 2 * hidden, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor, grid: Size) -> Tensor:
        """Maps x [B, rows columns, D] of a grid to [B, T', 2 D]; zeros fill an odd grid."""
        ops, (height, width), (batch, _, hidden) = ctx.ops, grid, x.shape
        x = ops.reshape(x, (batch, height, width, hidden))
        x = ops.pad(x, (0, 0, 0, 0), (0, height % 2, width % 2, 0)) if height % 2 or width % 2 else x
        rows, columns = x.shape[1] // 2, x.shape[2] // 2
        x = ops.transpose(ops.reshape(x, (batch, rows, 2, columns, 2, hidden)), (0, 1, 3, 4, 2, 5))
        return self.reduction(ctx, self.norm(ctx, ops.reshape(x, (batch, rows * columns, 4 * hidden))))


class SwinModel(VisionModel):
    """Swin.

    ``forward(pixel_values [B,C,height,width])`` gives ``logits`` [B,labels] of a classifier, or ``last_hidden_state``
    [B,T,D] and ``pooler_output`` [B,D], their mean.
    """

    def __init__(self, config: SwinConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        own, first, last = config, config.stages[0].hidden, config.stages[-1]
        self._swin: Final = own
        self.patches = PatchEmbedding(own.channels, first, own.patch, dtype=self.dtype)
        self.patch_norm = LayerNorm(first, eps=_EPS, dtype=self.dtype)
        self.positions = Parameter((1, own.tokens, first), self.dtype) if own.positions else None
        self.layers = Repeated(own.layers, self._layer)
        self.merges = Repeated(len(own.depths) - 1, lambda index: PatchMerging(own.stages[index].hidden, self.dtype))
        self.norm = LayerNorm(last.hidden, eps=last.norm_eps, dtype=self.dtype)
        self.classifier = Linear(last.hidden, own.labels, bias=True, dtype=self.dtype) if own.labels else None

    def _layer(self, index: int) -> EncoderLayer:
        """Makes a layer; every other one of a stage has shifted windows, unless one window is all of the grid."""
        stage, place = stage_of(self._swin.depths, index)
        config, grid, window = self._swin.stages[stage], _grids(self._swin)[stage], self._swin.window
        layer = EncoderLayer(config, index, self.dtype)
        shift = window // 2 if place % 2 and min(grid) > window else 0
        layer.self_attn = WindowAttention(config, grid, window, shift, self.dtype)
        return layer

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to f32 logits [B, labels], or [B, T, D] and [B, D]."""
        ops, depths, grids = ctx.ops, self._swin.depths, _grids(self._swin)
        x = self.patch_norm(ctx, self.patches(ctx, ops.cast(pixel_values, self.dtype)))
        x = x if self.positions is None else ops.add(x, ctx.parameter(self.positions))
        merges = list(self.merges)
        for index, layer in enumerate(self.layers):
            stage, place = stage_of(depths, index)
            with ctx.block(layer.path):
                x = layer(ctx, x)
            if place + 1 == depths[stage] and stage < len(merges):
                x = merges[stage](ctx, x, grids[stage])
        x = self.norm(ctx, x)
        pooled = ops.mean(x, (1,))
        if self.classifier is not None:
            return {"logits": ops.cast(self.classifier(ctx, pooled), f32)}
        return {"last_hidden_state": ops.cast(x, f32), "pooler_output": ops.cast(pooled, f32)}


def stage_of(depths: tuple[int, ...], index: int) -> tuple[int, int]:
    """Returns the stage of a layer, and its place there.

    >>> [stage_of((2, 1, 3), index) for index in range(6)]
    [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]
    """
    for stage, depth in enumerate(depths):
        if index < depth:
            return stage, index
        index -= depth
    raise IndexError(index)


def _grids(config: SwinConfig) -> list[Size]:
    """Returns the rows and columns of each stage."""
    grids = [config.grid]
    for _ in config.depths[1:]:
        height, width = grids[-1]
        grids.append(((height + 1) // 2, (width + 1) // 2))
    return grids


_DEFAULTS: Final = StackDefaults(1e-5, "gelu", image=224, patch=4)


def _read(fields: ConfigFields, architecture: str) -> SwinConfig:
    depths, heads = (_counts(fields, name, known) for name, known in (("depths", [2, 2, 6, 2]), ("num_heads", _HEADS)))
    if len(depths) != len(heads):
        fields.refuse("num_heads", f"as many numbers as depths ({len(depths)})")
    picture, classifies = read_picture(fields, _DEFAULTS), architecture == "SwinForImageClassification"
    if any(side % patch for side, patch in zip(picture["image"], picture["patch"], strict=True)):
        fields.refuse("patch_size", f"a side that divides image_size ({list(picture['image'])})")
    first, eps = fields.integer("embed_dim", 96), fields.number("layer_norm_eps", 1e-5)
    ratio, activation = fields.number("mlp_ratio", 4.0), activation_of(fields, default="gelu")
    bias, stages = fields.boolean("qkv_bias", True), list[StackConfig]()
    for stage, (depth, count) in enumerate(zip(depths, heads, strict=True)):
        hidden = first * 2**stage
        if hidden % count:
            fields.refuse(
                "num_heads", f"numbers that divide the sizes of their stages; {count} does not divide {hidden}"
            )
        sizes = {"hidden": hidden, "intermediate": int(ratio * hidden), "layers": depth, "heads": count}
        stages.append(StackConfig(**sizes, norm_eps=eps, activation=activation, qkv_bias=bias))
    config = SwinConfig(
        architecture=architecture,
        stack=replace(stages[-1], layers=sum(depths)),
        stages=tuple(stages),
        depths=tuple(depths),
        window=fields.integer("window_size", 7),
        positions=fields.boolean("use_absolute_embeddings", False),
        pooled=0 if classifies else stages[-1].hidden,
        labels=labels_of(fields) if classifies else 0,
        **picture,
    )
    if any(min(grid) < config.window for grid in _grids(config)):
        fields.refuse("window_size", f"at most the sides of all stages ({', '.join(map(str, _grids(config)))})")
    return config


_HEADS: Final = [3, 6, 12, 24]
_MOST_STAGES, _MOST_LAYERS = 8, 256


def _counts(fields: ConfigFields, name: str, default: list[int]) -> list[int]:
    values = fields.values.get(name) or default
    whole = isinstance(values, list) and 1 <= len(values) <= _MOST_STAGES
    if not whole or not all(type(value) is int and 1 <= value <= _MOST_LAYERS for value in values):
        fields.refuse(name, f"a list of 1 to {_MOST_STAGES} integers of 1 to {_MOST_LAYERS}")
    return values


_NAMES: Final = {
    "patches": "embeddings.patch_embeddings.projection",
    "patch_norm": "embeddings.norm",
    "positions": "embeddings.position_embeddings",
    "merges.{}.norm": "encoder.layers.{}.downsample.norm",
    "merges.{}.reduction": "encoder.layers.{}.downsample.reduction",
    "norm": "layernorm",
}
_LAYER: Final = {
    **{f"self_attn.{part[0]}_proj": f"attention.self.{part}" for part in ("query", "key", "value")},
    "self_attn.o_proj": "attention.output.dense",
    "attention_norm": "layernorm_before",
    "mlp.up_proj": "intermediate.dense",
    "mlp.down_proj": "output.dense",
    "mlp_norm": "layernorm_after",
}


def _keys(config: SwinConfig) -> RenamedModules:
    names = dict(_NAMES)
    for index in range(config.layers):
        stage, place = stage_of(config.depths, index)
        block = f"encoder.layers.{stage}.blocks.{place}"
        names[f"layers.{index}.self_attn.table"] = f"{block}.attention.self.relative_position_bias_table"
        for ours, stored in _LAYER.items():
            names |= {f"layers.{index}.{ours}.{kind}": f"{block}.{stored}.{kind}" for kind in ("weight", "bias")}
    return RenamedModules(names, above=("swin.",))


def _family(architecture: str) -> ModelFamily[Any]:
    return ModelFamily(
        architecture,
        "swin",
        lambda fields: _read(fields, architecture),
        SwinModel,
        _keys,
        "*encoder.layers.{}",
        ("*embeddings.mask_token", "classifier.*", "*relative_position_index"),
    )


SWIN: Final = (_family("SwinModel"), _family("SwinForImageClassification"))
