"""Faults at special values: signs of zeros, infinities, NaN, and sums so long that rounding counts."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from compile_dag import Node
from compile_hlo.emit import Builder, Emitter, SsaValue
from compile_hlo.emit._contract import factors, product
from compile_hlo.emit._reduce import kept_spec, reduced
from compile_hlo.emit._slices import padded
from compile_hlo.quirks._fault import fault
from lang_core import TensorSpec, f32, i32, i64
from lang_core.ops import LONG_SUM

Plain = Callable[..., Any]

XLA: Final = "xla"
"""Name beside those of targets: XLA for CPUs."""
_TURN: Final = 2 * math.pi
# 2 pi: 10 bits, 10 more, and the rest. Multiples of the first two by integers of 14 bits are exact in f32.
_TURN_PARTS: Final = (6.28125, 1.9340515136718750e-03, 1.2556659146e-06)
_BLOCK: Final = 1 << 7  # so many equal numbers are added with an error of 4e-6 at most


@fault("power", targets="llvm-cpu vulkan-spirv cuda", cases="pow_special_f32")
def power_of_special(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """A power is exp(y log x): NaN for negative x, for y = 0 and for x = 1 in places, and 0 and infinity lose signs.

    The power of |x| is computed, and the cases of IEEE 754 are chosen around it (iree-org/iree issue 19996,
    llvm/llvm-project issue 132202).
    """
    x, y = operands
    flags = TensorSpec(spec.shape, "bool")
    zero, one, endless = (e.filled(number, spec) for number in (0, 1, math.inf))
    size = e.elementwise("abs", (x,), spec)
    number = e.compare("LE", e.elementwise("abs", (y,), spec), endless, spec)
    is_one = e.elementwise("and", (e.compare("EQ", size, one, spec), number), flags)
    flat = e.elementwise("or", (e.compare("EQ", y, zero, spec), e.compare("EQ", x, one, spec)), flags)
    is_one = e.elementwise("or", (is_one, flat), flags)
    base, exponent = (e.select(is_one, one, name, spec) for name in (size, y))
    result = plain(e, op, (base, exponent), spec)
    result = e.select(e.compare("EQ", y, one, spec), size, result, spec)
    is_whole = e.compare("EQ", e.elementwise("floor", (y,), spec), y, spec)
    half = e.elementwise("multiply", (y, e.filled(0.5, spec)), spec)
    halves = e.compare("NE", e.elementwise("floor", (half,), spec), half, spec)
    is_odd = e.elementwise("and", (is_whole, halves), flags)
    bits = TensorSpec(spec.shape, i64 if spec.dtype.itemsize == 8 else i32)
    has_sign = e.compare("LT", e.bitcast(x, spec, bits), e.filled(0, bits), bits)
    turned = e.elementwise("and", (has_sign, is_odd), flags)
    result = e.select(turned, e.elementwise("negate", (result,), spec), result, spec)
    below = e.elementwise("and", (e.compare("LT", x, zero, spec), e.compare("LT", size, endless, spec)), flags)
    broken = e.elementwise("and", (below, e.elementwise("not", (is_whole,), flags)), flags)
    # The root of a negative number, for vmvx has no constant NaN of 16 bits.
    return e.select(broken, e.elementwise("sqrt", (x,), spec), result, spec)


@fault("add", targets=XLA, cases="add_zero_f32")
def sum_with_zero(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """XLA takes x + 0.0 for x, which is wrong for x = -0.0."""
    x, y = operands
    if e.is_number(x, "0.0") and not e.is_number(y, "0.0"):
        return _with_zero(e, y, spec)
    return _with_zero(e, x, spec) if e.is_number(y, "0.0") else plain(e, op, operands, spec)


@sum_with_zero.at("subtract")
def _less_negative_zero(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    x, y = operands
    return _with_zero(e, x, spec) if e.is_number(y, "-0.0") else plain(e, op, operands, spec)


def _with_zero(e: Builder, x: str, spec: TensorSpec) -> str:
    """Writes x + 0.0 without an addition."""
    zero = e.filled(0, spec)
    return e.select(e.compare("EQ", x, zero, spec), zero, x, spec)


@sum_with_zero.at("reduce")
def _sum_of_one(plain: Plain, e: Builder, op_name: str, operand: str, spec: TensorSpec, axes: tuple[int, ...]) -> str:
    """Adds the 0.0 with which a sum begins to the only number of each sum."""
    if op_name != "sum" or not spec.dtype.is_floating or any(spec.shape[axis] != 1 for axis in axes):
        return plain(e, op_name, operand, spec, axes)
    return e.reshape(_with_zero(e, operand, spec), spec, kept_spec(spec, axes).shape)


@fault("sine", "cosine", targets="llvm-cpu", cases="sin_far_f32")
def functions_of_far_angles(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """llvm-cpu takes 2 pi for one f32: sin(100000) is wrong by 0.003, and so are positions of long contexts.

    Multiples of 2 pi are subtracted in parts, of which all but the last are exact (Cody and Waite 1980).
    """
    (x,) = operands
    if spec.dtype is not f32:
        return plain(e, op, operands, spec)

    def times(name: str, number: float) -> str:
        return e.elementwise("multiply", (name, e.filled(number, spec)), spec)

    turns = e.elementwise("round_nearest_even", (times(x, 1 / _TURN),), spec)
    high = times(e.elementwise("round_nearest_even", (times(turns, 2.0**-10),), spec), 2.0**10)
    low = e.elementwise("subtract", (turns, high), spec)
    rest = x
    for part in _TURN_PARTS[:2]:
        for count in (high, low):
            rest = e.elementwise("subtract", (rest, times(count, part)), spec)
    rest = e.elementwise("subtract", (rest, times(turns, _TURN_PARTS[2])), spec)
    near = e.compare("LE", e.elementwise("abs", (x,), spec), e.filled(math.pi, spec), spec)
    return plain(e, op, (e.select(near, x, rest, spec),), spec)


@fault("multiply", targets="vmvx", cases="mul_by_zero_f32")
def product_with_zero(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """vmvx takes x * 0.0 for 0.0, which is wrong for negative x, infinities and NaN."""
    return plain(e, op, _hidden(e, operands, ("0.0", "-0.0"), spec), spec)


@fault("divide", targets="vmvx", cases="div_of_zero_f32")
def quotient_of_zero(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """vmvx takes 0.0 / x for 0.0, which is wrong for negative x, 0 and NaN."""
    x, y = operands
    return plain(e, op, (*_hidden(e, (x,), ("0.0", "-0.0"), spec), y), spec)


@fault("remainder", targets="vmvx", cases="rem_by_one_f32")
def remainder_by_one(plain: Plain, e: Builder, op: str, operands: Sequence[str], spec: TensorSpec) -> str:
    """vmvx takes the remainder of x by 1.0 for 0, as if x were an integer, and that of 0.0 by x too."""
    x, y = operands
    hidden = (*_hidden(e, (x,), ("0.0", "-0.0"), spec), *_hidden(e, (y,), ("1.0", "-1.0"), spec))
    return plain(e, op, hidden, spec)


def _hidden(e: Builder, names: Sequence[str], numbers: tuple[str, ...], spec: TensorSpec) -> list[str]:
    """Returns operands with barriers before those that are one of the numbers."""
    return [e.barrier(name, spec) if e.is_number(name, *numbers) else name for name in names]


@fault("reduce", targets="llvm-cpu vmvx vulkan-spirv cuda", cases="")
def long_sums(plain: Plain, e: Builder, op_name: str, operand: str, spec: TensorSpec, axes: tuple[int, ...]) -> str:
    """IREE adds one number after the other: a sum of two million times 0.1 is 199820.7.

    StableHLO leaves the order open. Long sums are sums of blocks, of which each is a sum of its own.
    """
    terms = math.prod(spec.shape[axis] for axis in axes)
    if op_name != "sum" or not spec.dtype.is_floating or terms <= LONG_SUM or spec.size == 0:
        return plain(e, op_name, operand, spec, axes)
    name, left = operand, spec
    for axis in sorted(axes, reverse=True):
        if left.shape[axis] > _BLOCK:
            name, left = _sums_of_blocks(plain, e, name, left, axis)
        name, left = plain(e, op_name, name, left, (axis,)), kept_spec(left, (axis,))
    return name


def _sums_of_blocks(plain: Plain, e: Builder, name: str, spec: TensorSpec, axis: int) -> tuple[str, TensorSpec]:
    """Returns sums of blocks along an axis, not more than a block has numbers."""
    while spec.shape[axis] > _BLOCK:
        block = _block_of(spec.shape[axis], _BLOCK)
        parts = _in_blocks(e, SsaValue(name, spec), axis, block)
        name = plain(e, "sum", parts.name, parts.spec, (axis + 1,))
        spec = kept_spec(parts.spec, (axis + 1,))
    return name, spec


def _block_of(size: int, most: int) -> int:
    """Returns the size of blocks, ``most`` or less if one of these divides the whole: then nothing is padded."""
    return next((block for block in range(most, most // 8, -1) if size % block == 0), most)


def _in_blocks(e: Builder, value: SsaValue, axis: int, block: int) -> SsaValue:
    """Returns a tensor with an axis as two, blocks and their elements; zeros fill the last block."""
    name, spec = value
    blocks = -(-spec.shape[axis] // block)
    room = TensorSpec((*spec.shape[:axis], blocks * block, *spec.shape[axis + 1 :]), spec.dtype)
    if room.shape != spec.shape:
        none = (0,) * spec.ndim
        high = tuple((blocks * block - dim) * (i == axis) for i, dim in enumerate(spec.shape))
        name = padded(e, value, e.scalar(0, spec.dtype), (none, high, none), room)
    parts = TensorSpec((*spec.shape[:axis], blocks, block, *spec.shape[axis + 1 :]), spec.dtype)
    return SsaValue(e.reshape(name, room, parts.shape), parts)


@fault("dot_general", targets=f"llvm-cpu vmvx vulkan-spirv cuda {XLA}", cases="")
def long_products(plain: Plain, e: Emitter, node: Node) -> str:
    """IREE, and XLA for narrow operands, add products one after the other: 4003.6 for 400,000 times 0.1 * 0.1.

    A long contraction is one in blocks, which are a batch axis, and their sum.
    """
    x, y = node.inputs
    x_contract, y_contract, x_batch, y_batch, dtype = node.attributes
    sizes = [x.shape[axis] for axis in x_contract]
    if not dtype.is_floating or math.prod(sizes) <= LONG_SUM:
        return plain(e, node)
    longest = max(range(len(sizes)), key=sizes.__getitem__)
    left, right = factors(e, x, y, dtype)
    # Results of all blocks together are no larger than the operands.
    rows, columns = (value.spec.size // math.prod(sizes) for value in (left, right))
    most = max(_BLOCK, rows * columns // (rows + columns))
    block = _block_of(sizes[longest], max(1, most * sizes[longest] // math.prod(sizes)))
    a, b = x_contract[longest], y_contract[longest]
    left, right = _in_blocks(e, left, a, block), _in_blocks(e, right, b, block)
    contract = _moved(x_contract, a), _moved(y_contract, b)
    result = node.results[0].spec
    at = len(x_batch)
    blocks = left.spec.shape[a]
    shape = (*result.shape[:at], blocks, *result.shape[at:])
    wide = TensorSpec(shape, dtype.accumulation)
    axes = (*contract, (*_moved(x_batch, a), a), (*_moved(y_batch, b), b))
    name = product(e, left, right, axes, wide)
    name, parts = _sums_of_blocks(reduced, e, name, wide, at)
    return e.convert(reduced(e, "sum", name, parts, (at,)), kept_spec(parts, (at,)), dtype)


def _moved(axes: Sequence[int], split: int) -> tuple[int, ...]:
    """Returns axes of a tensor of which one was split in two: the second half takes its place."""
    return tuple(axis + (axis >= split) for axis in axes)
