"""Vision towers with a class token: ViT's stages, with further first tokens, and positions or not."""

import math
from dataclasses import replace

import numpy as np

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor
from transformer_core.layers._embedding import PatchEmbedding
from transformer_core.models.encoders._interpolated import interpolated
from transformer_core.models.encoders._stack import EncoderStack, layer_norm
from transformer_core.models.encoders._vision import VisionConfig


def _patch_tables(config: VisionConfig, base: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns cos and sin f32 [T, H] of RoPE, as ``rope_tables`` has them; other tokens than patches are not rotated.

    Angles are of a patch's centre in rows, then in columns.
    """
    stack, (rows, columns) = config.stack, config.grid
    size = stack.head_size or stack.hidden // stack.heads
    frequencies = np.float32(1) / np.float32(base) ** np.arange(0, 1, 4 / size, dtype=np.float32)
    down, across = ((np.arange(count, dtype=np.float32) + 0.5) / count * 2 - 1 for count in (rows, columns))
    centres = np.stack(np.meshgrid(down, across, indexing="ij"), -1).reshape(rows * columns, 2, 1)
    angles = (np.float32(2 * math.pi) * centres * frequencies).reshape(rows * columns, -1)
    angles = np.concatenate([np.zeros((config.first_tokens, size // 2), np.float32), angles.astype(np.float32)])
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([cos, cos], 1), np.concatenate([-sin, sin], 1)


class VitTower(Module):
    """A class token, other first tokens, patches with positions, layers, and a norm.

    Args:
        config: sizes.
        dtype: dtype of the parameters.
        positions: whether the class token and the patches have learned positions.
        others: number of the first tokens behind the class token that have positions, too (DeiT's distillation token).
        registers: number of first tokens behind these that have none (DINOv2).
        rope_base: base of a RoPE of patches by their rows and columns (DINOv3); None without.
        normed: whether a LayerNorm follows the layers, whatever norms they have.
    """

    def __init__(
        self,
        config: VisionConfig,
        dtype: DType,
        *,
        positions: bool = True,
        others: int = 0,
        registers: int = 0,
        rope_base: float | None = None,
        normed: bool = True,
    ) -> None:
        hidden = config.stack.hidden
        self.class_token = Parameter((1, 1, hidden), dtype)
        self.other_tokens = Parameter((1, others, hidden), dtype) if others else None
        self.registers = Parameter((1, registers, hidden), dtype) if registers else None
        self.stored, self.grid, self.smooth = config.stored_grid, config.grid, config.resizes == "smooth"
        count = 1 + others + self.stored[0] * self.stored[1]
        self.positions = Parameter((1, count, hidden), dtype) if positions else None
        self.rope = None if rope_base is None else _patch_tables(config, rope_base)
        self.patches = PatchEmbedding(config.channels, hidden, config.patch, dtype=dtype)
        self.encoder = EncoderStack(config.stack, dtype)
        self.norm = layer_norm(replace(config.stack, rms_norm=False), dtype) if normed else None

    def forward(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Maps pixel_values [B, C, height, width] to states [B, T, D]."""
        ops = ctx.ops
        patches = self.patches(ctx, ops.cast(pixel_values, self.patches.weight.spec.dtype))
        batch, _, hidden = patches.shape

        def repeated(tokens: Parameter) -> Tensor:
            return ops.broadcast(ctx.parameter(tokens), (batch, tokens.spec.shape[1], hidden))

        first = [repeated(tokens) for tokens in (self.class_token, self.other_tokens) if tokens is not None]
        x = ops.concat([*first, patches], 1)
        if self.positions is not None:
            x = ops.add(x, self._positions(ctx, ctx.parameter(self.positions)))
        if self.registers is not None:
            begin = ops.slice_axis(x, 1, 0, 1)
            x = ops.concat([begin, repeated(self.registers), ops.slice_axis(x, 1, 1, x.shape[1])], 1)
        tables = None if self.rope is None else (ops.constant(self.rope[0]), ops.constant(self.rope[1]))
        x = self.encoder(ctx, x, tables=tables)
        return x if self.norm is None else self.norm(ctx, x)

    def _positions(self, ctx: ExecutionContext, positions: Tensor) -> Tensor:
        """Returns the positions [1, N, D] of the grid, interpolated if others are stored."""
        if self.stored == self.grid:
            return positions
        first = positions.shape[1] - self.stored[0] * self.stored[1]
        patches = ctx.ops.slice_axis(positions, 1, first, positions.shape[1])
        wanted = interpolated(ctx, patches, self.stored, self.grid, smooth=self.smooth)
        return ctx.ops.concat([ctx.ops.slice_axis(positions, 1, 0, first), wanted], 1)
