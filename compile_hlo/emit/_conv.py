"""Emission of convolution."""

from typing import NamedTuple

from compile_dag import Node
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._contract import wants_precision
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._types import integers, tensor_type
from lang_core import TensorSpec


class Window(NamedTuple):
    """Attributes of a convolution, per spatial axis but for the groups.

    Attributes:
        strides: distances between windows.
        padding: elements to add before and after.
        dilation: distances between taps.
        groups: number of parts that the channels fall into, each with its own kernel.
    """

    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int


@emits("conv")
def _conv(e: Emitter, node: Node) -> None:
    e.alias(node, convolved(e, node))


@overridable("conv")
def convolved(e: Emitter, node: Node) -> str:
    """Writes a node's convolution; f16 and bf16 products accumulate in f32 and are rounded once."""
    x, kernel = node.inputs
    result = node.results[0].spec
    source, taps, target = (TensorSpec(spec.shape, result.dtype.accumulation) for spec in (x.spec, kernel.spec, result))
    left = SsaValue(e.operand(x, x.shape, source.dtype), source)
    right = SsaValue(e.operand(kernel, kernel.shape, taps.dtype), taps)
    return e.convert(convolution(e, Window(*node.attributes), left, right, target), target, result.dtype)


@overridable("convolution")
def convolution(e: Builder, window: Window, x: SsaValue, kernel: SsaValue, target: TensorSpec) -> str:
    """Writes a convolution of x [B, spatial.., C] with a kernel [spatial.., C / groups, O]; see ``product`` for f32."""
    axes = [str(i) for i in range(len(window.strides))]
    layout = ", ".join(["b", *axes, "f"])
    pads = ", ".join([integers(pair) for pair in window.padding])
    highest = ", ".join(["#stablehlo<precision HIGHEST>"] * 2)
    precision = f", precision_config = [{highest}]" if wants_precision(x, kernel) else ""
    return e.new(
        f"stablehlo.convolution({x.name}, {kernel.name}) "
        f"dim_numbers = [{layout}]x[{', '.join([*axes, 'i', 'o'])}]->[{layout}], window = "
        f"{{stride = {integers(window.strides)}, pad = [{pads}], rhs_dilate = {integers(window.dilation)}}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {window.groups} : i64{precision}}} : "
        f"({x.kind}, {kernel.kind}) -> {tensor_type(target)}"
    )
