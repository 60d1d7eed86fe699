"""Converts pieces of weights between floating dtypes, and counts NaNs and infinities."""

from typing import Final, NamedTuple

import numpy as np

from lang_core import DType, bf16, f16, f32, f64

# Each floating dtype's bits as an unsigned integer, and the exponent field (all ones in Inf and NaN).
_EXPONENTS: Final = {bf16: ("u2", 0x7F80), f16: ("u2", 0x7C00), f32: ("u4", 0x7F800000), f64: ("u8", 0x7FF << 52)}


class NonFinite(NamedTuple):
    """Counts of elements that are NaN and of elements that are infinite."""

    nan: int = 0
    inf: int = 0


class LossError(Exception):
    """Finite element that became infinite: ``index`` in the piece, original ``value``."""

    def __init__(self, index: int, value: float) -> None:
        super().__init__(index, value)
        self.index = index
        self.value = value


def convertible(source: DType, target: DType) -> bool:
    """Returns whether values of one dtype can be stored as another: equal dtypes, or floating ones."""
    return source is target or (source.is_floating and target.is_floating)


def count_nonfinite(piece: np.ndarray, dtype: DType, scratch: np.ndarray) -> NonFinite:
    """Counts the NaNs and infinities.

    Args:
        piece: ``[n]`` of ``dtype``.
        dtype: any dtype; the counts of one that is not floating are 0.
        scratch: buffer of bytes, at least as large as the piece.
    """
    if dtype not in _EXPONENTS or not piece.size:
        return NonFinite()
    code, exponent = _EXPONENTS[dtype]
    bits = scratch[: piece.nbytes].view(code)
    np.left_shift(piece.view(code), 1, out=bits)  # drops the sign
    if bits.max() < exponent << 1:
        return NonFinite()
    return NonFinite(int(np.count_nonzero(bits > exponent << 1)), int(np.count_nonzero(bits == exponent << 1)))


def convert(piece: np.ndarray, out: np.ndarray) -> None:
    """Converts into ``out``, rounding to nearest even; widening is exact (a NaN keeps its payload from bf16 to f32).

    Args:
        piece: ``[n]`` of a floating dtype.
        out: ``[n]`` of a floating dtype.
    """
    with np.errstate(all="ignore"):
        if piece.dtype == f64.numpy and out.dtype == bf16.numpy:
            piece = _rounded_to_odd(piece)
        if piece.dtype == bf16.numpy and out.dtype == f16.numpy:
            _bf16_to_f16(piece, out)
        else:
            np.copyto(out, piece, casting="unsafe")


def check_lossless_range(piece: np.ndarray, out: np.ndarray) -> None:
    """Raises LossError if a finite element of ``piece`` is infinite in ``out`` (both ``[n]``)."""
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        lost = np.isinf(out) & np.isfinite(piece)
    if lost.any():
        index = int(lost.argmax())
        raise LossError(index, float(piece[index]))


def _bf16_to_f16(piece: np.ndarray, out: np.ndarray) -> None:
    """Shifts the bits of numbers that are normal in both, exact as f16 has the longer mantissa; converts the rest."""
    source, bits = piece.view(np.uint16), out.view(np.uint16)
    magnitude = source & np.uint16(0x7FFF)
    np.subtract(magnitude, np.uint16(112 << 7), out=bits)  # the biases of the exponents, 127 and 15, differ by 112
    rest = np.flatnonzero((bits < 1 << 7) | (bits >= 31 << 7))
    np.left_shift(bits, 3, out=bits)
    np.bitwise_and(source, np.uint16(0x8000), out=magnitude)
    np.bitwise_or(bits, magnitude, out=bits)
    out[rest] = piece[rest].astype(f16.numpy)


def _rounded_to_odd(piece: np.ndarray) -> np.ndarray:
    """Rounds f64 to f32 such that rounding again, to fewer bits, equals rounding once (Boldo and Melquiond, 2008)."""
    near = piece.astype(np.float32)
    wide = near.astype(np.float64)
    bits = near.view(np.uint32)
    bits -= np.abs(wide) > np.abs(piece)  # towards zero
    bits |= (near.astype(np.float64) != piece) & ~np.isnan(piece)
    return near
