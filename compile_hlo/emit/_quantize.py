"""Emission of the packing of blocks that caches hold: a helper function, which a kernel may replace."""

import math
from typing import Final

import numpy as np

from compile_dag import Node
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._calls import call_helper, flat
from compile_hlo.emit._emitter import Emitter, emits
from compile_hlo.emit._helpers import Helper
from compile_hlo.emit._overrides import overridable
from compile_hlo.emit._reduce import reduced
from compile_hlo.emit._slices import cut_last, joined
from compile_hlo.emit._types import tensor_type
from compile_hlo.emit._unpacking import integer_op
from lang_core import Encoding, TensorSpec, f16, f32, i8, i32
from lang_core.ops import LEAST_MAGNITUDE

_BYTE: Final = 8  # bits of a signed integer that is stored as it is
_SIGN: Final = 0x80
HALF_LIMIT: Final = 65520.0
"""Least magnitude that f16 rounds to infinity."""


@emits("quantize")
def _quantize(e: Emitter, node: Node) -> None:
    (x,), (encoding,) = node.inputs, node.attributes
    rows, columns = flat(x.shape)
    given, result = TensorSpec((rows, columns), x.dtype), encoding.packed(TensorSpec((rows, columns), x.dtype))
    helper = Helper("quantize", f"{encoding.name}.{x.dtype.name}.{rows}x{columns}", {"encoding": encoding.name})

    def body(inner: Emitter, matrix: SsaValue) -> list[str]:
        return [packed(inner, matrix, encoding)]

    operand = SsaValue(e.reshape(e.name(x), x.spec, given.shape), given)
    e.alias(node, e.reshape(call_helper(e, helper, [operand], (result,), body), result, node.results[0].shape))


def packed(e: Builder, matrix: SsaValue, encoding: Encoding) -> str:
    """Writes a matrix [rows, K] in the blocks of an encoding, i8 [rows, bytes]."""
    (rows, columns), size = matrix.spec.shape, encoding.block
    cube, blocks = TensorSpec((rows, columns // size, size), f32), TensorSpec((rows, columns // size), f32)
    x = e.reshape(e.convert(matrix.name, matrix.spec, f32), TensorSpec(matrix.spec.shape, f32), cube.shape)
    most = reduced(e, "max", e.elementwise("abs", (x,), cube), cube, (2,))
    flags, every = TensorSpec(blocks.shape, "bool"), TensorSpec(cube.shape, "bool")
    finite = e.compare("LT", most, e.filled(math.inf, blocks), blocks)
    large = e.compare("GE", most, e.filled(LEAST_MAGNITUDE, blocks), blocks)
    kept = e.elementwise("and", (finite, large), flags)
    x = e.select(e.spread(kept, flags, every, (0, 1)), x, e.filled(0, cube), cube)
    most = e.select(kept, most, e.filled(0, blocks), blocks)
    signed = encoding.bits < _BYTE
    if signed:
        largest = _with_sign(e, x, most, cube)
        scale = e.elementwise("multiply", (largest, e.filled(-1 / (1 << encoding.bits - 1), blocks)), blocks)
    else:
        scale = e.elementwise("divide", (most, e.filled((1 << _BYTE - 1) - 1, blocks)), blocks)
    one = e.filled(1, blocks)
    inverse = e.elementwise("divide", (one, e.select(kept, scale, one, blocks)), blocks)
    scaled = e.elementwise("multiply", (x, e.spread(inverse, blocks, cube, (0, 1))), cube)
    if signed:
        q = _nibbles(e, scaled, cube, encoding.bits)
    else:
        whole = SsaValue(e.elementwise("round_nearest_afz", (scaled,), cube), cube)
        q = SsaValue(_whole(e, whole), TensorSpec(cube.shape, i32))
    stored = SsaValue(e.convert(q.name, q.spec, i8), TensorSpec(q.spec.shape, i8))
    within = e.compare("LT", e.elementwise("abs", (scale,), blocks), e.filled(HALF_LIMIT, blocks), blocks)
    good = e.elementwise("and", (finite, within), flags)
    scale = e.select(good, scale, e.filled(math.nan, blocks), blocks)
    whole = joined(e, [half_bytes(e, SsaValue(scale, blocks)), stored], 2)
    return e.reshape(whole.name, whole.spec, (rows, columns // size * encoding.block_bytes))


def _with_sign(e: Builder, x: str, most: str, cube: TensorSpec) -> str:
    """Writes the first number of each block that has the block's largest magnitude."""
    blocks, places = TensorSpec(cube.shape[:2], f32), TensorSpec(cube.shape, i32)
    numbers = e.constant(np.arange(cube.shape[2], dtype=np.int32))
    place = e.spread(numbers, TensorSpec(cube.shape[2:], i32), places, (2,))
    after = e.filled(cube.shape[2], places)
    first: list[str] = []
    least = e.elementwise("negate", (most,), blocks)
    for value in (most, least):
        equal = e.compare("EQ", x, e.spread(value, blocks, cube, (0, 1)), cube)
        first.append(reduced(e, "min", e.select(equal, place, after, places), places, (2,)))
    positive = e.compare("LE", first[0], first[1], TensorSpec(blocks.shape, i32))
    return e.select(positive, most, least, blocks)


def _nibbles(e: Builder, scaled: str, cube: TensorSpec, bits: int) -> SsaValue:
    """Writes the integers of numbers -8 .. 8 in pairs, i32 of a signed byte: the first half of a block is low."""
    middle, size = 1 << bits - 1, cube.shape[2]
    above = e.elementwise("add", (scaled, e.filled(middle + 0.5, cube)), cube)
    above = e.elementwise("floor", (above,), cube)  # vmvx's conversion rounds to nearest
    whole = TensorSpec(cube.shape, i32)
    most = e.filled((1 << bits) - 1, whole)
    q = SsaValue(e.elementwise("minimum", (_whole(e, SsaValue(above, cube)), most), whole), whole)
    low, high = cut_last(e, q, 0, size // 2), cut_last(e, q, size // 2, size)
    byte = integer_op(e, "or", low, integer_op(e, "shift_left", high, bits))
    return integer_op(e, "subtract", integer_op(e, "xor", byte, _SIGN), _SIGN)


def _whole(e: Builder, x: SsaValue) -> str:
    """Writes whole numbers, f32, as i32."""
    target = tensor_type(TensorSpec(x.spec.shape, i32))
    return e.new(f"stablehlo.convert {x.name} : ({x.kind}) -> {target}")


@overridable("half_bytes")
def half_bytes(e: Builder, scale: SsaValue) -> SsaValue:
    """Writes f32 [..] as the bytes of f16s, i8 [.., 2]."""
    number, pair = TensorSpec(scale.spec.shape, f16), TensorSpec((*scale.spec.shape, 2), i8)
    return SsaValue(e.bitcast(e.convert(scale.name, scale.spec, f16), number, pair), pair)
