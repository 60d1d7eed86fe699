"""Embeddings of tokens, and of the patches of images."""

import math

import numpy as np

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, TensorSpec, checked_choices

Size = tuple[int, int]
"""Height and width."""


@checked_choices
class Embedding(Module):
    """Rows of ``weight [V, D]`` by token id. ``packable`` is as for ``Linear``."""

    def __init__(self, vocabulary: int, size: int, *, dtype: DType | str = "f32", packable: bool = True) -> None:
        self.packable = packable
        self.weight = Parameter((vocabulary, size), dtype)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Embeds token_ids i32 [..] as [.., D]. Ids outside of the vocabulary are clamped into it."""
        rows = ctx.ops.embedding(ctx.parameter(self.weight), token_ids)
        encoding = self.weight.encoding
        return rows if encoding is None else ctx.ops.dequantize(rows, encoding, self.weight.spec.dtype)


class TokenEmbedding(Embedding):
    """Embedding with a row per token of a vocabulary."""


@checked_choices
class PatchEmbedding(Module):
    """Embeds each patch of an image as a token (Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1).

    A convolution with strides of its kernel's size, computed as one matrix product. Pixels at the lower and right edges
    outside whole patches are ignored.

    Args:
        channels: C of the image.
        size: D.
        patch: height and width of a patch.
        bias: whether there is a bias.
        dtype: dtype of the parameters.
    """

    def __init__(self, channels: int, size: int, patch: Size, *, bias: bool = True, dtype: DType | str = "f32") -> None:
        self.patch = patch
        self.weight = Parameter((size, channels, *patch), dtype)
        self.bias = Parameter((size,), dtype) if bias else None

    def forward(self, ctx: ExecutionContext, pixels: Tensor) -> Tensor:
        """Maps pixels [B, C, height, width] to [B, T, D], patches row by row."""
        ops = ctx.ops
        batch, channels, height, width = pixels.shape
        down, across = self.patch
        rows, columns = height // down, width // across
        whole = ops.slice_axis(ops.slice_axis(pixels, 2, 0, rows * down), 3, 0, columns * across)
        apart = ops.reshape(whole, (batch, channels, rows, down, columns, across))
        patches = ops.transpose(apart, (0, 2, 4, 1, 3, 5))  # [B, rows, columns, C, down, across]
        length = channels * down * across
        patches = ops.reshape(patches, (batch, rows * columns, length))
        weight = ops.reshape(ctx.parameter(self.weight), (self.weight.spec.shape[0], length))
        return ops.linear(patches, weight, None if self.bias is None else ctx.parameter(self.bias))


def sinusoids(
    ctx: ExecutionContext, positions: Tensor, first: int, spec: TensorSpec, *, paired: bool = False
) -> Tensor:
    """Returns sines, then cosines of positions i32 [.., T]: [.., T, D] for a residual stream of ``spec`` [B, T, D].

    Frequencies fall from 1 to 1 / 10000 (tensor2tensor), or end before that if they are paired. The first position has
    the number ``first``.
    """
    ops, half = ctx.ops, spec.shape[-1] // 2
    step = np.float32(math.log(10000.0) / (half if paired else half - 1))
    frequencies = np.exp(np.arange(half, dtype=np.float32) * -step)
    numbers = ops.cast(ops.add(positions, first), "f32")
    angles = ops.mul(ops.reshape(numbers, (*positions.shape, 1)), ops.constant(frequencies))
    return ops.cast(ops.concat([ops.sin(angles), ops.cos(angles)], -1), spec.dtype)


def patch_count(image: Size, patch: Size) -> int:
    """Returns the number of whole patches of an image."""
    return math.prod(pixels // side for pixels, side in zip(image, patch, strict=True))
