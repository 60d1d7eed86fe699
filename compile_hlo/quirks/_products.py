"""Faults in sums of products and reductions, caused by ops that the compiler fuses into them."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from compile_dag import Node, Value
from compile_hlo.emit import Builder, Emitter, SsaValue
from compile_hlo.emit._conv import Window
from compile_hlo.emit._elementwise import low_bits
from compile_hlo.emit._reduce import kept_spec
from compile_hlo.emit._slices import cut, cut_last, joined
from compile_hlo.quirks._fault import fault
from lang_core import DType, TensorSpec, bool_, i32, i64, u8

Plain = Callable[..., Any]

# Ops that leave a conversion no more than a conversion.
_RENAMES: Final = frozenset(("broadcast", "cast", "reshape", "transpose"))
# Their results are computed before the product, whatever their operands are.
_ENDS: Final = frozenset(
    "all any argmax argmin cond conv cos dot_general dynamic_update_slice erf exp expm1 iota log log1p logistic max "
    "min pow prod put rsqrt scatter sin sort sqrt sum tanh while".split()
)


class WidenedValues:
    """Follows which values are arithmetic on numbers of fewer bytes; any value it was not told of is not."""

    def __init__(self) -> None:
        # Number of the value; True if there was more than a conversion.
        self._widened: dict[int, bool] = {}

    def follow(self, node: Node) -> None:
        """Takes the next node."""
        result, widened = node.results[0], self._widened
        dtype = result.spec.dtype
        if not widened and all(value.spec.dtype is dtype for value in node.inputs):
            return  # the usual case, and this is asked of every node
        if dtype.itemsize <= 2 or node.op.name in _ENDS:
            return
        known = [widened[value.number] for value in node.inputs if value.number in widened]
        if known or any(_widens(value.spec.dtype, dtype) for value in node.inputs):
            widened[result.number] = any(known) or node.op.name not in _RENAMES

    def has(self, value: Value) -> bool:
        """Returns whether a value is arithmetic on a conversion."""
        return self._widened.get(value.number, False)

    def forget(self, value: Value) -> None:
        """Drops the facts of a value that is not used any more."""
        self._widened.pop(value.number, None)


def _widens(source: DType, target: DType) -> bool:
    return source is not bool_ and source.itemsize < target.itemsize


def _is_widened(e: Emitter, value: Value) -> bool:
    return isinstance(e.watcher, WidenedValues) and e.watcher.has(value)


@fault("dot_general", targets="interpreter vmvx vulkan-spirv", cases="dot_general_empty_f32")
def product_of_nothing(plain: Plain, e: Emitter, node: Node) -> str:
    """The interpreter crashes on an empty sum of products, and vmvx and Vulkan lack code for it."""
    x, result = node.inputs[0], node.results[0].spec
    return plain(e, node) if all(x.shape[axis] for axis in node.attributes[0]) else e.filled(0, result)


@fault("factors", targets="vulkan-spirv", cases="dot_general_casts_i8")
def product_of_integers(plain: Plain, e: Emitter, x: Value, y: Value, dtype: DType) -> tuple[SsaValue, SsaValue]:
    """Conversions of both operands are fused into a product of integers, which is then wrong on Vulkan."""
    left, right = plain(e, x, y, dtype)
    return (_apart(e, left), _apart(e, right)) if left.spec.dtype in (i32, i64) else (left, right)


@fault("factors", targets="vulkan-spirv", cases="dot_general_of_scaled_bf16_7x33x5", watch=WidenedValues)
def product_of_widened(plain: Plain, e: Emitter, x: Value, y: Value, dtype: DType) -> tuple[SsaValue, SsaValue]:
    """Arithmetic on a conversion from fewer bytes is recomputed inside of the product that it is the right operand of.

    At sizes that do not tile, the numbers are then wrong on Vulkan: ``x @ (cast(w, "f32") * scale)`` for w of f16,
    bf16, i8 or u8, or of f32 in f64. A conversion alone is right, and so are conversions of moved values; a function
    such as exp in between ends it.
    """
    left, right = plain(e, x, y, dtype)
    has_barrier = right.spec.dtype in (i32, i64)  # see product_of_integers
    return left, _apart(e, right) if _is_widened(e, y) and not has_barrier else right


@product_of_widened.at("close_block")
def _widened_results(plain: Plain, body: Emitter, results: Sequence[Value]) -> None:
    """Puts barriers behind results: the function that they go to does not know of them, and IREE inlines this one."""
    plain(body, results)
    for value in results:
        if _is_widened(body, value):
            body.bind(value, body.barrier(body.name(value), value.spec))


@fault("factors", targets="llvm-cpu vmvx vulkan-spirv", cases="dot_general_wide_u8")
def product_of_unsigned(plain: Plain, e: Emitter, x: Value, y: Value, dtype: DType) -> tuple[SsaValue, SsaValue]:
    """The sign of u8 is taken along into a wider product unless the bits are masked."""
    left, right = plain(e, x, y, dtype)
    if x.dtype is not u8 or dtype is u8:
        return left, right
    return _unsigned(e, left, dtype), _unsigned(e, right, dtype)


def _unsigned(e: Builder, value: SsaValue, dtype: DType) -> SsaValue:
    spec = TensorSpec(value.spec.shape, i32)
    return SsaValue(e.convert(low_bits(e, *value), spec, dtype), TensorSpec(spec.shape, dtype))


def _apart(e: Builder, value: SsaValue) -> SsaValue:
    return SsaValue(e.barrier(*value), value.spec)


@fault("conv", targets="interpreter", cases="conv_no_channels_f32")
def convolution_of_nothing(plain: Plain, e: Emitter, node: Node) -> str:
    """The interpreter dies of some convolutions without elements."""
    result = node.results[0].spec
    return plain(e, node) if result.size and all(value.spec.size for value in node.inputs) else e.filled(0, result)


@fault("convolution", targets="llvm-cpu vmvx vulkan-spirv", cases="conv_depthwise_bf16")
def convolution_of_converted(
    plain: Plain, e: Builder, window: Window, x: SsaValue, kernel: SsaValue, target: TensorSpec
) -> str:
    """Conversions before a convolution are fused into it, which then fails to compile or, on Vulkan, is wrong."""
    return plain(e, window, _apart(e, x), _apart(e, kernel), target)


@fault("convolution", targets="llvm-cpu vmvx vulkan-spirv", cases="conv_one_window_f32")
def convolution_of_one_window(
    plain: Plain, e: Builder, window: Window, x: SsaValue, kernel: SsaValue, target: TensorSpec
) -> str:
    """A stride along an axis with one window reads beyond the input: the stride and unused inputs are left out."""
    strides, padding, ranges = list(window.strides), list(window.padding), [(0, dim) for dim in x.spec.shape]
    for i, (stride, (low, _), dilation) in enumerate(zip(*window[:3], strict=True)):
        seen = (kernel.spec.shape[i] - 1) * dilation + 1 - low  # elements of x, if it has so many
        if stride > 1 and target.shape[i + 1] == 1 and seen > 0:
            size = x.spec.shape[i + 1]
            strides[i], padding[i], ranges[i + 1] = 1, (low, max(0, seen - size)), (0, min(seen, size))
    if tuple(strides) == window.strides:
        return plain(e, window, x, kernel, target)
    one = window._replace(strides=tuple(strides), padding=tuple(padding))
    whole = all(range_ == (0, dim) for range_, dim in zip(ranges, x.spec.shape, strict=True))
    return plain(e, one, x if whole else cut(e, x, ranges), kernel, target)


@fault("convolution", targets="vulkan-spirv", cases="conv_2d_groups_f32")
def convolution_in_groups(
    plain: Plain, e: Builder, window: Window, x: SsaValue, kernel: SsaValue, target: TensorSpec
) -> str:
    """A convolution in groups of several channels gives wrong numbers on Vulkan: there is one per group."""
    groups, one = window.groups, window._replace(groups=1)
    if groups == 1 or kernel.spec.shape[-2] == 1:
        return plain(e, window, x, kernel, target)
    part = TensorSpec((*target.shape[:-1], target.shape[-1] // groups), target.dtype)
    parts: list[SsaValue] = []
    for group in range(groups):
        left, right = _channels(e, x, group, groups), _channels(e, kernel, group, groups)
        parts.append(SsaValue(plain(e, one, left, right, part), part))
    return joined(e, parts, target.ndim - 1).name


def _channels(e: Builder, value: SsaValue, group: int, groups: int) -> SsaValue:
    """Returns the channels of one group: the last axis."""
    size = value.spec.shape[-1] // groups
    return cut_last(e, value, group * size, (group + 1) * size)


@fault("reduce", targets="vulkan-spirv", cases="max_beside_0_f32")
def reduction_beside_operand(
    plain: Plain, e: Builder, op_name: str, operand: str, spec: TensorSpec, axes: tuple[int, ...]
) -> str:
    """A reduction over other axes than the last is fused with later ops, such as ``x - max(x)``, and then wrong."""
    result = plain(e, op_name, operand, spec, axes)
    if not axes or sorted(axes) == list(range(spec.ndim - len(axes), spec.ndim)):
        return result
    return e.barrier(result, kept_spec(spec, axes))


@fault("reduce", targets="cuda", cases="max_long_i32 min_long_i32")
def extremes_of_integers(
    plain: Plain, e: Builder, op_name: str, operand: str, spec: TensorSpec, axes: tuple[int, ...]
) -> str:
    """Long rows of i32 have a maximum of at least 0, and a minimum of at most -1, on CUDA.

    Lanes without an element hold the last bits of the least or greatest i64: the reduced values are i64 in memory, for
    a conversion that is fused with such a reduction cannot be compiled.
    """
    if op_name not in ("max", "min") or spec.dtype.is_floating or spec.dtype is i64:
        return plain(e, op_name, operand, spec, axes)
    wide = TensorSpec(spec.shape, i64)
    operand = e.barrier(e.convert(operand, spec, i64), wide)
    return e.convert(plain(e, op_name, operand, wide, axes), kept_spec(wide, axes), spec.dtype)


@fault("block_quantize", targets="llvm-cpu", cases="")
def integers_of_blocks(plain: Plain, e: Builder, matrix: SsaValue, bits: int) -> list[str]:
    """The way from f32 by i32 and i8 to the f32 of a product cannot be legalised in one dispatch."""
    q, *others = plain(e, matrix, bits)
    rows, columns = matrix.spec.shape
    return [e.barrier(q, TensorSpec((rows, bits // 8, columns), "i8")), *others]


@fault("packed_factors", targets="vulkan-spirv", cases="")
def product_with_packed(plain: Plain, e: Builder, *args: Any) -> tuple[SsaValue, SsaValue]:
    """Conversions are fused into a product with a packed weight, which is then wrong on Vulkan."""
    left, right = plain(e, *args)
    return _apart(e, left), _apart(e, right)
