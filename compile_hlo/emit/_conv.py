"""Emission of convolution."""

from compile_dag import Node
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._types import integers, tensor_type
from lang_core import TensorSpec, f32


@emits("conv")
def _conv(e: Emitter, node: Node) -> None:
    x, kernel = node.inputs
    result = node.results[0].spec
    strides, padding, dilation, groups = node.attributes
    # f16 and bf16 products accumulate in f32 and are rounded once.
    wide = f32 if result.dtype.itemsize == 2 else result.dtype
    source, taps, target = (TensorSpec(spec.shape, wide) for spec in (x.spec, kernel.spec, result))
    weights = e.operand(kernel, kernel.shape, wide)
    if groups > 1 and wide is not result.dtype:
        # IREE 3.13 fuses the conversion into a depthwise convolution, and then fails to compile that.
        weights = e.new(f"stablehlo.optimization_barrier {weights} : {tensor_type(taps)}")
    axes = [str(i) for i in range(len(strides))]
    layout = ", ".join(["b", *axes, "f"])
    pads = ", ".join([integers(pair) for pair in padding])
    name = e.new(
        f"stablehlo.convolution({e.operand(x, x.shape, wide)}, {weights}) "
        f"dim_numbers = [{layout}]x[{', '.join([*axes, 'i', 'o'])}]->[{layout}], "
        f"window = {{stride = {integers(strides)}, pad = [{pads}], rhs_dilate = {integers(dilation)}}} "
        f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64}} : "
        f"({tensor_type(source)}, {tensor_type(taps)}) -> {tensor_type(target)}"
    )
    e.alias(node, e.convert(name, target, result.dtype))
