"""Emission of convolution."""

from typing import Any

from compile_dag import Node
from compile_hlo.emit._aligned import cut, joined
from compile_hlo.emit._elementwise import wide_dtype
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import integers, tensor_type
from lang_core import TensorSpec


@emits("conv")
def _conv(e: Emitter, node: Node) -> None:
    """f16 and bf16 products accumulate in f32 and are rounded once."""
    x, kernel = node.inputs
    result = node.results[0].spec
    groups = node.attributes[3]
    if not (
        x.spec.size and kernel.spec.size and result.size
    ):  # sums of nothing; the reference interpreter dies of some
        e.alias(node, e.constant(result.dtype.numpy.type(0), result))
        return
    source, taps, target = (TensorSpec(spec.shape, wide_dtype(result.dtype)) for spec in (x.spec, kernel.spec, result))
    left, right = e.operand(x, x.shape, source.dtype), e.operand(kernel, kernel.shape, taps.dtype)
    # IREE 3.13 fuses conversions that come before it, and then fails to compile or, on Vulkan, gives wrong numbers.
    left = e.barrier(left, source)
    right = e.barrier(right, taps)
    by_group = groups > 1 and taps.shape[-2] > 1
    convolve = _by_group if by_group else _convolution
    name = convolve(e, node.attributes, left, right, (source, taps, target))
    e.alias(node, e.convert(name, target, result.dtype))


def _by_group(
    e: Emitter, attributes: tuple[Any, ...], x: str, kernel: str, specs: tuple[TensorSpec, TensorSpec, TensorSpec]
) -> str:
    """One convolution per group: IREE 3.13 gives wrong numbers for groups of several channels on Vulkan."""
    source, taps, target = specs
    strides, padding, dilation, groups = attributes
    parts: list[tuple[str, TensorSpec]] = []
    for group in range(groups):
        left, left_spec = _channels(e, x, source, group, groups)
        right, right_spec = _channels(e, kernel, taps, group, groups)
        part = TensorSpec((*target.shape[:-1], target.shape[-1] // groups), target.dtype)
        one = (strides, padding, dilation, 1)
        parts.append((_convolution(e, one, left, right, (left_spec, right_spec, part)), part))
    return joined(e, parts, target.ndim - 1)[0]


def _channels(e: Emitter, name: str, spec: TensorSpec, group: int, groups: int) -> tuple[str, TensorSpec]:
    """The channels of one group: the last axis."""
    size = spec.shape[-1] // groups
    return cut(e, name, spec, [*((0, dim) for dim in spec.shape[:-1]), (group * size, (group + 1) * size)])


def _convolution(
    e: Emitter, attributes: tuple[Any, ...], x: str, kernel: str, specs: tuple[TensorSpec, TensorSpec, TensorSpec]
) -> str:
    strides, padding, dilation, groups = attributes
    source, taps, target = map(tensor_type, specs)
    axes = [str(i) for i in range(len(strides))]
    layout = ", ".join(["b", *axes, "f"])
    pads = ", ".join([integers(pair) for pair in padding])
    return e.new(
        f"stablehlo.convolution({x}, {kernel}) "
        f"dim_numbers = [{layout}]x[{', '.join([*axes, 'i', 'o'])}]->[{layout}], "
        f"window = {{stride = {integers(strides)}, pad = [{pads}], rhs_dilate = {integers(dilation)}}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : ({source}, {taps}) -> {target}"
    )
