"""Convolutions over time."""

import functools
from typing import Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, checked_choices


@checked_choices
class Conv1d(Module):
    """``y[t] = sum over i of weight[:, :, i] x[stride * t + i - padding] + bias``, with zeros beyond the ends.

    The weight [out, in, width] lies as PyTorch's Conv1d has it. Computed as one matrix product of windows side by side:
    IREE 3.13 computes convolutions without vectors on CPUs, at 1 GFLOP/s.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int,
        *,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
        dtype: DType | str = "f32",
    ) -> None:
        self.weight = Parameter((outputs, inputs, width), dtype)
        self.bias = Parameter((outputs,), dtype) if bias else None
        self.stride, self.padding, self.width = stride, padding, width

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, in] to [B, T', out] with ``T' = (T + 2 padding - width) // stride + 1``."""
        ops, side = ctx.ops, (0, self.padding, 0)
        x = ops.pad(x, side, side) if self.padding else x
        batch, tokens, inputs = x.shape
        last = tokens - self.width  # where the last window may begin
        windows = [
            ops.slice(x, (0, i, 0), (batch, last + i + 1, inputs), (1, self.stride, 1)) for i in range(self.width)
        ]
        weight = ops.transpose(ctx.parameter(self.weight), (0, 2, 1))  # [out, width, in]
        weight = ops.reshape(weight, (weight.shape[0], self.width * inputs))
        return ops.linear(ops.concat(windows, 2), weight, None if self.bias is None else ctx.parameter(self.bias))


_TAPS: Final = 16  # of a window that one product reads


@checked_choices
class GroupedConv1d(Module):
    """``Conv1d`` of channels in groups, with as many zeros at both ends that T stays; one more before an even width.

    The weight [out, in / groups, width] lies as PyTorch's Conv1d has it. Computed as products of windows of 16 taps: a
    window of all taps would need as much memory as 128 inputs (wav2vec2).
    """

    def __init__(self, channels: int, groups: int, width: int, *, dtype: DType | str = "f32") -> None:
        self.weight = Parameter((channels, channels // groups, width), dtype)
        self.bias = Parameter((channels,), dtype)
        self.groups, self.width = groups, width

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, T, C] to [B, T, C]."""
        ops, groups, width, taps = ctx.ops, self.groups, self.width, min(_TAPS, self.width)
        (batch, tokens, channels), size, parts = x.shape, x.shape[2] // groups, -(-width // taps)
        last = parts * taps - width  # taps that are zeros
        weight = ops.reshape(ctx.parameter(self.weight), (groups, size, size, width))
        weight = ops.transpose(weight, (0, 3, 2, 1))  # [groups, width, in, out]
        weight = ops.pad(weight, (0, 0, 0, 0), (0, last, 0, 0)) if last else weight
        weight = ops.reshape(weight, (groups, parts, taps * size, size))
        x = ops.pad(x, (0, width // 2, 0), (0, width - 1 - width // 2 + last, 0))
        x = ops.transpose(ops.reshape(x, (batch, x.shape[1], groups, size)), (2, 0, 1, 3))
        windows = x.shape[2] - taps + 1
        x = ops.concat([ops.slice_axis(x, 2, tap, tap + windows) for tap in range(taps)], 3)
        products = [
            ops.dot_general(
                ops.slice_axis(x, 2, part * taps, part * taps + tokens),
                ops.reshape(ops.slice_axis(weight, 1, part, part + 1), (groups, taps * size, size)),
                ((3,), (1,)),
                ((0,), (0,)),
            )
            for part in range(parts)
        ]
        y = ops.transpose(functools.reduce(ops.add, products), (1, 2, 0, 3))  # [B, T, groups, out]
        return ops.add(ops.reshape(y, (batch, tokens, channels)), ctx.parameter(self.bias))


@checked_choices
class CausalConv(Module):
    """Each channel convolved by itself, over its own and earlier tokens. The weight lies as PyTorch's Conv1d has it.

    Args:
        channels: C.
        taps: W.
        bias: whether there is one.
        groups: number of groups of x's channels. With more than one, the weight has the first part of every group,
            then the second part of every group, ..., while x has group after group, so that devices can divide groups.
        parts: number of channels of each part of a group.
        dtype: dtype of the parameters.
    """

    def __init__(
        self,
        channels: int,
        taps: int,
        *,
        bias: bool = False,
        groups: int = 1,
        parts: tuple[int, ...] = (),
        dtype: DType | str = "f32",
    ) -> None:
        self.weight = Parameter((channels, 1, taps), dtype)
        self.bias = Parameter((channels,), dtype) if bias else None
        self.channels, self.taps = channels, taps
        self.groups, self.parts = groups, parts

    def forward(
        self, ctx: ExecutionContext, x: Tensor, state: Tensor | None = None, count: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """x [B, T, C] after state [B, W - 1, C]: the same shapes, see ``ops.causal_conv``."""
        weight = ctx.ops.reshape(ctx.parameter(self.weight), (self.channels, self.taps))
        bias = None if self.bias is None else ctx.parameter(self.bias)
        if self.groups > 1:
            weight, bias = self._by_group(ctx, weight), None if bias is None else self._by_group(ctx, bias)
        return ctx.ops.causal_conv(x, weight, bias, state, count)

    def _by_group(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Takes x [C, ..], which has part after part, in the order of the groups.

        As a gather it leaves x whole on every device; of slices beside each other a partitioner cuts x itself, and
        mends that by exchanges.
        """
        ops, width = ctx.ops, sum(self.parts)
        group, channel = ops.iota((self.groups, width), 0), ops.iota((self.groups, width), 1)
        places, begin = channel, 0
        for size in self.parts:
            place = ops.add(ops.add(ops.mul(group, size), channel), (self.groups - 1) * begin)
            places = ops.select(ops.greater_equal(channel, begin), place, places)
            begin += size
        return ops.take(x, ops.reshape(places, (self.channels,)), 0)
