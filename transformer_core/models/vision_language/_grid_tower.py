"""Vision towers of images of any size: patches with their rows and columns as positions (Qwen2-VL and its kin).

Patches come square by square: the ``merge * merge`` patches of one token are side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lang_core import DType, ExecutionContext, Module, Parameter, Repeated, Tensor, checked_choices
from transformer_core.layers._linear import Linear
from transformer_core.layers._masks import mask_bias
from transformer_core.layers._norm import LayerNorm, RMSNorm
from transformer_core.models.encoders._stack import EncoderLayer, layer_norm
from transformer_core.models.encoders._vision import VisionConfig

_MERGER_EPS: Final = 1e-6


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class GridVisionConfig(VisionConfig):
    """Configuration of a tower; ``image`` is the smallest image. Further attributes as of ``VisionConfig``.

    Attributes:
        merge: side of the squares of patches that become one token each.
        output: size of a token's embedding.
        frames: number of frames of a patch; an image is repeated as often.
        projection_bias: whether the projection of patches has a bias.
        first_norm: whether a norm precedes the layers (Pixtral).
        apart: whether rows and columns turn by frequencies of their own, in turns (Pixtral), or by the same ones.
        rope_base: base of RoPE's frequencies.
        window: side of the squares of tokens that see each other; None if all do.
        whole_layers: layers in which all patches see each other, if others have windows.
        positions: side of the square of learned positions, which are interpolated; None without.
        deep_layers: layers with results that the decoder's first layers take, one each (DeepStack).
    """

    merge: int
    output: int
    frames: int
    projection_bias: bool = False
    first_norm: bool = False
    apart: bool = False
    rope_base: float = 10000.0
    window: int | None = None
    whole_layers: tuple[int, ...] = ()
    positions: int | None = None
    deep_layers: tuple[int, ...] = ()

    @property
    def patch_values(self) -> int:
        """Number of values of a patch in one frame."""
        return self.channels * self.patch[0] * self.patch[1]

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return {
            **{key: value for key, value in VisionConfig.facts(self).items() if key != "image"},
            "merge": self.merge,
        }


@dataclass(frozen=True, slots=True)
class Places:
    """Places of the patches of images.

    Attributes:
        row: i32 [B, N].
        column: i32 [B, N].
        is_real: bool [B, N], false of padding.
        height: i32 [B, 1], rows of patches.
        width: i32 [B, 1], columns of patches.
    """

    row: Tensor
    column: Tensor
    is_real: Tensor
    height: Tensor
    width: Tensor


def places_of(ctx: ExecutionContext, grid: Tensor, patches: int, merge: int) -> Places:
    """Returns the places of patches that come square by square.

    Args:
        ctx: context that computes.
        grid: i32 [B, 2], rows and columns of patches, multiples of ``merge``.
        patches: N.
        merge: side of a square.
    """
    ops = ctx.ops
    height, width = ops.slice_axis(grid, 1, 0, 1), ops.slice_axis(grid, 1, 1, 2)
    index = ops.iota((1, patches), 1)
    square, within = ops.quotient(index, merge * merge), ops.rem(index, merge * merge)
    across = ops.quotient(width, merge)
    row = ops.add(ops.mul(ops.quotient(square, across), merge), ops.quotient(within, merge))
    column = ops.add(ops.mul(ops.rem(square, across), merge), ops.rem(within, merge))
    return Places(row, column, ops.less(index, ops.mul(height, width)), height, width)


class PatchMerger(Module):
    """Two linear layers from the patches of a square to a token; norms patches, or with ``joined`` whole squares."""

    def __init__(self, config: GridVisionConfig, dtype: DType, *, joined: bool = False) -> None:
        size = config.stack.hidden * config.merge**2
        kind = RMSNorm if config.stack.rms_norm else LayerNorm
        self.norm = kind(size if joined else config.stack.hidden, eps=_MERGER_EPS, dtype=dtype)
        self.linear_1 = Linear(size, size, bias=True, dtype=dtype)
        self.linear_2 = Linear(size, config.output, bias=True, dtype=dtype)
        self.joined, self.size = joined, size

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps patches x [B, N, E] to tokens [B, T, D]."""
        ops, shape = ctx.ops, (x.shape[0], -1, self.size)
        x = self.norm(ctx, ops.reshape(x, shape)) if self.joined else ops.reshape(self.norm(ctx, x), shape)
        return self.linear_2(ctx, ops.gelu(self.linear_1(ctx, x)))


class GridTower(Module):
    """Projection of patches, layers that rotate by rows and columns, and mergers of squares."""

    def __init__(self, config: GridVisionConfig, dtype: DType) -> None:
        stack = config.stack
        self.config = config
        self.projection = Parameter((stack.hidden, config.channels, config.frames, *config.patch), dtype)
        self.projection_bias = Parameter((stack.hidden,), dtype) if config.projection_bias else None
        self.first_norm = layer_norm(stack, dtype) if config.first_norm else None
        side = config.positions
        self.positions = None if side is None else Parameter((side * side, stack.hidden), dtype)
        self.layers = Repeated(stack.layers, lambda index: EncoderLayer(stack, index, dtype))

    def forward(self, ctx: ExecutionContext, pixel_values: Tensor, grid: Tensor) -> list[Tensor]:
        """Maps patches [B, N, C * height * width] to states [B, N, E]: the last ones, then those of ``deep_layers``."""
        config = self.config
        places = places_of(ctx, grid, pixel_values.shape[1], config.merge)
        x = self._projected(ctx, pixel_values)
        if self.positions is not None and config.positions is not None:
            x = ctx.ops.add(x, ctx.ops.cast(self._positions(ctx, ctx.parameter(self.positions), places), x.dtype))
        if self.first_norm is not None:
            x = self.first_norm(ctx, x)
        tables, (near, far) = self._tables(ctx, places), self._biases(ctx, places)
        deep = {}
        for index, layer in enumerate(self.layers):
            whole = config.window is None or index in config.whole_layers
            with ctx.block(layer.path):
                x = layer(ctx, x, far if whole else near, tables)
            deep[index] = x
        return [x, *(deep[index] for index in config.deep_layers)]

    def _projected(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Projects patches; all frames of an image are the same, so that one is multiplied with the sum of weights."""
        ops, config, weight = ctx.ops, self.config, ctx.parameter(self.projection)
        summed = ops.reshape(ops.sum(ops.cast(weight, "f32"), 2), (config.stack.hidden, config.patch_values))
        x = ops.cast(ops.dot_general(pixel_values, summed, ((2,), (1,))), weight.dtype)
        return x if self.projection_bias is None else ops.add(x, ctx.parameter(self.projection_bias))

    def _tables(self, ctx: ExecutionContext, places: Places) -> tuple[Tensor, Tensor]:
        """Returns cos and sin f32 [B, 1, N, H]: a quarter of the head turns by rows, a quarter by columns."""
        ops, stack = ctx.ops, self.config.stack
        half = (stack.head_size or stack.hidden // stack.heads) // 2
        apart, base = self.config.apart, np.float32(self.config.rope_base)
        powers = np.arange(0, 2 * half, 2) / (2 * half) if apart else np.arange(0, half, 2) / half
        frequencies = np.float32(1) / base ** powers.astype(np.float32)
        by_axis = (frequencies[0::2], frequencies[1::2]) if apart else (frequencies, frequencies)
        turns = [
            ops.mul(ops.reshape(ops.cast(axis, "f32"), (axis.shape[0], 1, axis.shape[1], 1)), ops.constant(own))
            for axis, own in zip((places.row, places.column), by_axis, strict=True)
        ]
        angles = ops.concat(turns, 3)
        cos, sin = ops.cos(angles), ops.sin(angles)
        return ops.concat([cos, cos], 3), ops.concat([ops.negate(sin), sin], 3)

    def _biases(self, ctx: ExecutionContext, places: Places) -> tuple[Tensor, Tensor]:
        """Returns the biases of layers with windows and without, [B, 1, 1, T, N]; padding sees all of the image."""
        ops, window, is_real = ctx.ops, self.config.window, places.is_real
        batch, patches = is_real.shape
        far = ops.reshape(is_real, (batch, 1, 1, 1, patches))
        near = far
        if window is not None:
            side = window * self.config.merge
            across = ops.add(ops.quotient(places.width, side), 1)
            number = ops.add(ops.mul(ops.quotient(places.row, side), across), ops.quotient(places.column, side))
            query, key = (ops.reshape(number, (batch, 1, 1, *shape)) for shape in ((patches, 1), (1, patches)))
            is_padding = ops.logical_not(ops.reshape(is_real, (batch, 1, 1, patches, 1)))
            near = ops.logical_and(far, ops.logical_or(ops.equal(query, key), is_padding))
        return mask_bias(ctx, near), mask_bias(ctx, far)

    def _positions(self, ctx: ExecutionContext, table: Tensor, places: Places) -> Tensor:
        """Returns learned positions f32 [B, N, E] of a square, interpolated bilinearly from corner to corner."""
        ops, side = ctx.ops, self.config.positions
        assert side is not None
        rows = _taps(ctx, places.row, places.height, side)
        columns = _taps(ctx, places.column, places.width, side)
        total = None
        for row, by_row in rows:
            for column, by_column in columns:
                index = ops.add(ops.mul(row, side), column)
                share = ops.reshape(ops.mul(by_row, by_column), (*index.shape, 1))
                part = ops.mul(ops.cast(ops.take(table, index, 0), "f32"), share)
                total = part if total is None else ops.add(total, part)
        assert total is not None
        return total


def _taps(ctx: ExecutionContext, index: Tensor, size: Tensor, side: int) -> Sequence[tuple[Tensor, Tensor]]:
    """Returns the two neighbours i32 [B, N] of a place in a line of ``side``, and their weights."""
    ops = ctx.ops
    last = ops.cast(ops.maximum(ops.sub(size, 1), 1), "f32")
    source = ops.div(ops.mul(ops.cast(index, "f32"), float(side - 1)), last)
    floor = ops.floor(source)
    share = ops.sub(source, floor)
    first = ops.minimum(ops.cast(floor, "i32"), side - 1)
    second = ops.minimum(ops.add(ops.cast(floor, "i32"), 1), side - 1)
    return ((first, ops.sub(1.0, share)), (second, share))


class GridConnector(Module):
    """Mergers of the tower's last states, and of those for the decoder's first layers."""

    def __init__(self, config: GridVisionConfig, dtype: DType) -> None:
        self.merger = PatchMerger(config, dtype)
        self.deep = [PatchMerger(config, dtype, joined=True) for _ in config.deep_layers]

    def forward(self, ctx: ExecutionContext, states: Sequence[Tensor]) -> list[Tensor]:
        """Maps states [B, N, E] to tokens [B, T, D] each."""
        last, *deep = states
        return [self.merger(ctx, last), *(merge(ctx, x) for merge, x in zip(self.deep, deep, strict=True))]
