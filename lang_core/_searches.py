"""Quantizers that search: K-quants, IQ4_NL and IQ4_XS, and any layout of blocks if inputs have importance.

The search is that of llama.cpp's reference quantizers (``make_qkx3_quants``, ``make_qx_quants``, ``make_qp_quants`` and
``quantize_row_iq4_nl_impl`` of ggml-quants.c), over many blocks at once. Then d and dmin are solved for with the
integers held, and kept if a block's weighed error is less.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core._formats import LAYOUTS
from lang_core._layouts import BlockLayout, Plane
from lang_core._quantizers import QUANTIZERS, Quantizer

_LARGEST_HALF: Final = 65504.0
_LARGEST: Final = float(np.finfo(np.float32).max) / 4
_REFINEMENTS: Final = 2
_TRIES: Final = 9  # steps of a tenth to both sides
_TABLE_TRIES: Final = 7
_AFFINE: Final = (-1.0, 0.1, 20)  # first step, distance, and count
_AFFINE_WEIGHED: Final = (-0.9, 0.05, 36)
_AFFINE_LEAPS: Final = 4
_SUB_TRIES: Final = 4
_TINY: Final = 1e-15

_Array = np.ndarray[Any, Any]


class _Ranges(NamedTuple):
    """Ranges of a layout's integers.

    Attributes:
        least: least integer of a weight, after the offset is subtracted.
        most: greatest.
        sub_least: least integer that scales a part.
        sub_most: greatest.
    """

    least: int
    most: int
    sub_least: int
    sub_most: int


class _Blocks(NamedTuple):
    """Weights of blocks, the elements of a part along the first axis.

    Attributes:
        x: weights, f32 [scaled, n * parts].
        w: weights of errors, as x.
        parts: number of parts of a block.
    """

    x: _Array
    w: _Array
    parts: int


class _Coded(NamedTuple):
    """Integers of blocks.

    Attributes:
        d: scales, f16 [n].
        dmin: scales of minima, f16 [n]; 0 without minima.
        scales: integers that scale parts, f32 [n, parts].
        minima: integers of the minima, as scales.
        integers: integers of the weights, f32 [scaled, n * parts]; of tables the indices.
        error: weighed squared errors of parts, f64 [n, parts].
    """

    d: _Array
    dmin: _Array
    scales: _Array
    minima: _Array
    integers: _Array
    error: _Array


def _search(layout: BlockLayout, blocks: _Array, packed: _Array, importance: _Array | None) -> None:
    """Packs f32 [n, size] into u8 [n, bytes]; importance is f32 [n, size] or None."""
    weights = _blocks(layout, blocks, importance)
    ranges = _ranges(layout)
    best: _Coded | None = None
    for scales, minima in _by_parts(layout, weights, ranges, importance is not None):
        for candidate in _sub_coded(layout, weights, ranges, scales, minima):
            best = candidate if best is None else _better(best, candidate)
    assert best is not None
    for _ in range(_REFINEMENTS):
        best = _better(best, _refined(layout, weights, ranges, best))
        if layout.sub_scales is not None:
            best = _regridded(layout, weights, ranges, best)
    _store(layout, best, packed)


def _blocks(layout: BlockLayout, blocks: _Array, importance: _Array | None) -> _Blocks:
    """Returns blocks with the weights of errors: importance, or 1."""
    if importance is None:
        weights = np.ones_like(blocks)
    else:
        weights = importance.astype(np.float32)
        # Inputs that were 0 throughout leave their weights free: any integers would do, so the nearest are taken.
        parts = weights.reshape(-1, layout.scaled)
        parts[parts.max(axis=1) <= 0] = _TINY
    return _Blocks(_turned(layout, blocks), _turned(layout, weights), layout.parts)


def _turned(layout: BlockLayout, blocks: _Array) -> _Array:
    return np.ascontiguousarray(blocks.reshape(-1, layout.scaled).T)


def _ranges(layout: BlockLayout) -> _Ranges:
    bits = sum(plane.bits for plane in layout.planes)
    signed = bits == 8
    least, most = (-128, 127) if signed else (-layout.offset, (1 << bits) - 1 - layout.offset)
    sub = layout.sub_scales
    if sub is None:
        return _Ranges(least, most, 1, 1)
    if sub.signed:
        return _Ranges(least, most, -128, 127)
    if sub.offset:
        return _Ranges(least, most, -sub.offset, sub.offset - 1)
    return _Ranges(least, most, 0, (1 << sum(plane.bits for plane in sub.planes)) - 1 if sub.planes else 63)


def _by_parts(
    layout: BlockLayout, blocks: _Blocks, ranges: _Ranges, weighed: bool
) -> Iterator[tuple[_Array, _Array | None]]:
    """Yields scales and minima of parts; with importance also those that the reference weighs by magnitudes, too."""
    if layout.minimum is None:
        yield _symmetric(layout, blocks, ranges), None
        return
    yield _affine(layout, blocks, ranges, _AFFINE)
    if weighed:
        squares = blocks.x * blocks.x
        mean = squares.mean(axis=0).reshape(-1, blocks.parts).mean(axis=1).repeat(blocks.parts)
        weights = blocks.w * np.sqrt(mean * np.float32(1 if layout.scaled == 16 else 2) + squares)
        yield _affine(layout, _Blocks(blocks.x, weights, blocks.parts), ranges, _AFFINE_WEIGHED)


def _affine(
    layout: BlockLayout, blocks: _Blocks, ranges: _Ranges, steps: tuple[float, float, int]
) -> tuple[_Array, _Array]:
    """Returns scale and minimum (its negative is added) of each part, f32 [n * parts]; as ``make_qkx3_quants``.

    Of all steps, those with the least weighed squared error are taken; it is found from sums alone.
    """
    x, w = blocks.x, blocks.w
    least, greatest = x.min(axis=0), x.max(axis=0)
    if not layout.adds_minimum:
        least = np.minimum(least, 0)
    span, most = greatest - least, np.float32(ranges.most)
    wx, above = w * x, x - least
    sum_w, sum_x, sum_xx = (_sum(part) for part in (w, wx, wx * x))
    scale, minimum = _divided(span, most).astype(np.float64), least.astype(np.float64)
    error = np.full(span.shape, np.inf)
    start, step, count = steps
    own_scale, own_minimum = scale, minimum
    for attempt in range(-1, count + 1 + _AFFINE_LEAPS):
        if attempt < 0:
            integers = above * _divided(most, span)
        elif attempt <= count:
            integers = above * _divided(np.float32(start + step * attempt) + most, span)
        else:  # from the best so far on: the nearest integers of the scale and minimum that are best for the last ones
            integers = (x - minimum.astype(np.float32)) * _divided(np.float32(1), scale.astype(np.float32))
        np.rint(integers, out=integers)
        np.clip(integers, 0, most, out=integers)
        weighted = w * integers
        sum_l, sum_xl = _sum(weighted), _sum(wx * integers)
        weighted *= integers
        sum_ll = _sum(weighted)
        determinant = sum_w * sum_ll - sum_l * sum_l
        if attempt >= 0:
            own_scale = _divided(sum_w * sum_xl - sum_x * sum_l, determinant)
            own_minimum = _divided(sum_ll * sum_x - sum_l * sum_xl, determinant)
            if not layout.adds_minimum:
                positive = own_minimum > 0
                own_scale = np.where(positive, _divided(sum_xl, sum_ll), own_scale)
                own_minimum = np.where(positive, 0, own_minimum)
        own = (
            own_scale * own_scale * sum_ll + 2 * own_scale * own_minimum * sum_l - 2 * own_scale * sum_xl
            + own_minimum * own_minimum * sum_w - 2 * own_minimum * sum_x + sum_xx
        )  # fmt: skip
        better = (own < error) & ((determinant > 0) | (attempt < 0))
        error = np.where(better, own, error)
        scale, minimum = np.where(better, own_scale, scale), np.where(better, own_minimum, minimum)
    return np.where(span > 0, scale, 0).astype(np.float32), (-minimum).astype(np.float32)


def _symmetric(layout: BlockLayout, blocks: _Blocks, ranges: _Ranges) -> _Array:
    """Returns the scale of each part, f32 [n * parts]; as ``make_qx_quants``, or for tables as IQ4_NL's search."""
    x = blocks.x
    largest = _largest(x)
    wx = blocks.w * x
    if layout.table is None:
        unit = -ranges.least if layout.planes[0].bits < 8 else ranges.most
        factors = [np.float32(-(unit + 0.1 * attempt)) for attempt in range(-_TRIES, _TRIES + 1)]
        if layout.planes[0].bits == 8:
            factors = [-factor for factor in factors]
    else:
        factors = [np.float32(layout.table[0] + attempt) for attempt in range(-_TABLE_TRIES, _TABLE_TRIES + 1)]
        factors.append(np.float32(-layout.table[0]))
    return _best_scale(layout, x, blocks.w, wx, factors, largest, (ranges.least, ranges.most))


def _best_scale(
    layout: BlockLayout | None,
    x: _Array,
    w: _Array,
    wx: _Array,
    factors: list[np.float32],
    largest: _Array,
    bounds: tuple[int, int],
) -> _Array:
    """Returns the scales of columns whose nearest multiples explain most; without a layout, multiples are integers."""
    best, scale = np.full(largest.shape, -1.0), np.zeros(largest.shape)
    for factor in factors:
        scaled = x * _divided(factor, largest)
        values = _nearest(layout, scaled, *bounds)
        sum_xl, sum_ll = _sum(wx * values), _sum(w * values * values)
        own = _divided(sum_xl, sum_ll)
        better = own * sum_xl > best
        best, scale = np.where(better, own * sum_xl, best), np.where(better, own, scale)
    return np.where(np.abs(largest) > 0, scale, 0).astype(np.float32)


def _largest(x: _Array) -> _Array:
    """Returns the number of the greatest magnitude in each column."""
    most, least = x.max(axis=0), x.min(axis=0)
    return np.where(most >= -least, most, least)


def _nearest(layout: BlockLayout | None, scaled: _Array, least: int, most: int) -> _Array:
    """Returns the values of integers that are nearest to scaled weights."""
    if layout is not None and layout.table is not None:
        return _TABLES[layout.table][0][_places(layout, scaled)]
    np.rint(scaled, out=scaled)
    return np.clip(scaled, least, most, out=scaled)


def _places(layout: BlockLayout, scaled: _Array) -> _Array:
    """Returns places in the table of halves that ``_table`` makes."""
    scaled = scaled + scaled
    np.floor(scaled, out=scaled)
    np.clip(scaled, -_HALVES, _HALVES - 1, out=scaled)
    return (scaled + np.float32(_HALVES)).astype(np.int32)


_HALVES: Final = 320


def _table(table: tuple[int, ...]) -> tuple[_Array, _Array]:
    """Returns the nearest values, f32, and their indices, f32, for halves from ``-_HALVES`` on; ties go up."""
    halves = (np.arange(-_HALVES, _HALVES) + 0.25) / 2
    indices = np.abs(halves[:, np.newaxis] - np.array(table)).argmin(axis=1)
    return np.array(table, np.float32)[indices], indices.astype(np.float32)


_TABLES: Final = {layout.table: _table(layout.table) for layout in LAYOUTS.values() if layout.table is not None}


def _sub_coded(
    layout: BlockLayout, blocks: _Blocks, ranges: _Ranges, scales: _Array, minima: _Array | None
) -> list[_Coded]:
    """Returns the blocks with scales of parts as integers, in the ways that the reference has."""
    by_block = scales.reshape(-1, blocks.parts)
    none = np.zeros_like(by_block)
    mins = none if minima is None else minima.reshape(-1, blocks.parts)
    if layout.sub_scales is None:
        sign = np.float32(-1 if layout.adds_minimum else 1)
        ones = np.ones_like(by_block)
        halves = _half(by_block[:, 0]), _half(sign * mins[:, 0])
        return [_coded(layout, blocks, ranges, *halves, ones, ones if minima is not None else none)]
    weights = blocks.w.sum(axis=0).reshape(by_block.shape)
    plain = _integers(by_block, *_unsearched(by_block, ranges), ranges)
    searched = _integers(by_block, *_searched(by_block, weights, ranges), ranges)
    if minima is None:
        zero = np.zeros(len(by_block), np.float16)
        return [_coded(layout, blocks, ranges, d, zero, integers, none) for d, integers in (plain, searched)]
    plain_min = _integers(mins, *_unsearched(mins, ranges), ranges)
    searched_min = _integers(mins, *_searched(mins, weights, ranges), ranges)
    pairs = [(one, low) for one in (plain, searched) for low in (plain_min, searched_min)]
    return [_coded(layout, blocks, ranges, d, dmin, ints, lows) for (d, ints), (dmin, lows) in pairs]


def _unsearched(numbers: _Array, ranges: _Ranges) -> tuple[_Array, _Array]:
    """Returns d and its inverse such that the greatest number becomes the outermost integer, f32 [n, 1]."""
    largest = _largest(numbers.T)[:, np.newaxis]
    outermost = np.float32(ranges.sub_least or ranges.sub_most)
    return _divided(largest, outermost), _divided(outermost, largest)


def _searched(numbers: _Array, weights: _Array, ranges: _Ranges) -> tuple[_Array, _Array]:
    """Returns the d whose multiples are nearest to numbers, weighed, and its inverse, f32 [n, 1]."""
    largest = _largest(numbers.T)
    outermost = np.float32(ranges.sub_least or ranges.sub_most)
    tries = _TRIES if ranges.sub_least else _SUB_TRIES
    sign = np.sign(outermost)
    factors = [outermost + sign * np.float32(0.1 * attempt) for attempt in range(-tries, tries + 1)]
    x, w = np.ascontiguousarray(numbers.T), np.ascontiguousarray(weights.T)
    d = _best_scale(None, x, w, w * x, factors, largest, (ranges.sub_least, ranges.sub_most))[:, np.newaxis]
    return d, _divided(np.float32(1), d)


def _integers(numbers: _Array, d: _Array, inverse: _Array, ranges: _Ranges) -> tuple[_Array, _Array]:
    """Returns d in f16 [n], and the integers of numbers, f32 [n, parts]."""
    integers = np.clip(np.rint(numbers * inverse), ranges.sub_least, ranges.sub_most)
    return _half(d[:, 0]), integers.astype(np.float32)


def _coded(
    layout: BlockLayout,
    blocks: _Blocks,
    ranges: _Ranges,
    d: _Array,
    dmin: _Array,
    scales: _Array,
    minima: _Array,
) -> _Coded:
    """Returns blocks with the nearest integers for scales."""
    sign = np.float32(-1 if layout.adds_minimum else 1)
    unit = (d.astype(np.float32)[:, np.newaxis] * scales).reshape(-1)
    below = (sign * dmin.astype(np.float32)[:, np.newaxis] * minima).reshape(-1)
    scaled = (blocks.x + below) * _divided(np.float32(1), unit)
    if layout.table is not None:
        values, places = _TABLES[layout.table]
        chosen = _places(layout, scaled)
        integers, restored = places[chosen], values[chosen]
    else:
        integers = np.clip(np.rint(scaled), ranges.least, ranges.most)
        restored = integers
    difference = restored * unit - below - blocks.x
    error = _sum(blocks.w * difference * difference).reshape(-1, blocks.parts)
    return _Coded(d, dmin, scales, minima, integers, np.where(np.isfinite(error), error, np.inf))


def _refined(layout: BlockLayout, blocks: _Blocks, ranges: _Ranges, coded: _Coded) -> _Coded:
    """Returns blocks with the d and dmin that are best for their integers, and then the nearest integers."""
    values = coded.integers if layout.table is None else np.array(layout.table, np.float32)[coded.integers.astype(int)]
    values = values * coded.scales.reshape(-1)
    w, x, parts = blocks.w, blocks.x, blocks.parts

    def total(products: _Array) -> _Array:
        return _sum(products).reshape(-1, parts).sum(axis=1)

    wv = w * values
    vv, vx = total(wv * values), total(wv * x)
    if layout.minimum is None:
        return _coded(layout, blocks, ranges, _half(_divided(vx, vv)), coded.dmin, coded.scales, coded.minima)
    lows = coded.minima.reshape(-1) * np.float32(1 if layout.adds_minimum else -1)
    wl = w * lows
    ll, lv, lx = total(wl * lows), total(wl * values), total(wl * x)
    determinant = vv * ll - lv * lv
    both = determinant > 1e-9 * vv * ll
    d = np.where(both, _divided(vx * ll - lx * lv, determinant), _divided(vx, vv))
    dmin = np.where(both, _divided(vv * lx - lv * vx, determinant), 0)
    return _coded(layout, blocks, ranges, _half(d), _half(dmin), coded.scales, coded.minima)


def _regridded(layout: BlockLayout, blocks: _Blocks, ranges: _Ranges, coded: _Coded) -> _Coded:
    """Returns blocks with the better of neighbouring integers that scale parts, each part for itself."""
    best, sum_w = coded, _sum(blocks.w)
    for shift in (0, -1, 1):
        scales = np.clip(coded.scales + np.float32(shift), ranges.sub_least, ranges.sub_most)
        other = _coded(layout, blocks, ranges, coded.d, coded.dmin, scales, coded.minima)
        if layout.minimum is not None:
            unit = (coded.d.astype(np.float32)[:, np.newaxis] * scales).reshape(-1)
            below = _divided(_sum(blocks.w * (other.integers * unit - blocks.x)), sum_w).reshape(scales.shape)
            minima = np.rint(_divided(below, coded.dmin.astype(np.float64)[:, np.newaxis]))
            minima = np.clip(minima, 0, ranges.sub_most).astype(np.float32)
            best = _chosen(best, other, other.error < best.error)
            other = _coded(layout, blocks, ranges, coded.d, coded.dmin, scales, minima)
        best = _chosen(best, other, other.error < best.error)
    return best


def _better(one: _Coded, other: _Coded) -> _Coded:
    """Returns for each block the candidate with the lesser error, the first if they are equal."""
    better = other.error.sum(axis=1) < one.error.sum(axis=1)
    return _chosen(one, other, np.broadcast_to(better[:, np.newaxis], one.error.shape), better)


def _chosen(one: _Coded, other: _Coded, parts: _Array, whole: _Array | None = None) -> _Coded:
    """Returns the second candidate for some parts; d and dmin are the same, unless ``whole`` says which blocks' are."""
    if not parts.any():
        return one
    scale = one.d if whole is None else np.where(whole, other.d, one.d)
    minimum = one.dmin if whole is None else np.where(whole, other.dmin, one.dmin)
    pairs = ((one.scales, other.scales), (one.minima, other.minima))
    scales, minima = (np.where(parts, b, a) for a, b in pairs)
    integers = np.where(parts.reshape(-1), other.integers, one.integers)
    return _Coded(scale, minimum, scales, minima, integers, np.where(parts, other.error, one.error))


def _store(layout: BlockLayout, coded: _Coded, packed: _Array) -> None:
    """Writes the bytes of blocks."""
    packed[...] = 0
    packed[:, layout.scale : layout.scale + 2] = _bytes(coded.d)
    if layout.minimum is not None:
        packed[:, layout.minimum : layout.minimum + 2] = _bytes(coded.dmin)
    parts = layout.parts
    integers = coded.integers.reshape(layout.scaled, -1, parts).transpose(1, 2, 0).reshape(len(packed), -1)
    signed = layout.planes[0].bits == 8
    stored = integers.astype(np.int8).view(np.uint8) if signed else (integers + layout.offset).astype(np.uint8)
    _store_planes(layout.planes, stored, packed)
    sub = layout.sub_scales
    if sub is None:
        return
    numbers = coded.scales if layout.minimum is None else np.concatenate([coded.scales, coded.minima], axis=1)
    whole = (numbers + sub.offset).astype(np.int16).astype(np.uint8)
    if sub.planes:
        _store_planes(sub.planes, whole, packed)
    elif not sub.fields:
        packed[:, sub.at : sub.at + whole.shape[1]] = whole
    else:
        words = np.zeros((len(packed), 4), np.uint32)
        results = np.ascontiguousarray(whole).view("<u4")
        for field in sub.fields:
            for place, (word, right, mask) in enumerate(zip(field.words, field.right, field.masks, strict=True)):
                words[:, word] |= (results[:, place] & np.uint32(mask)) << np.uint32(right)
        packed[:, sub.at : sub.at + 16] |= np.ascontiguousarray(words).view(np.uint8)


def _store_planes(planes: tuple[Plane, ...], integers: _Array, packed: _Array) -> None:
    """Writes the bits of integers u8 [n, count]."""
    count = integers.shape[1]
    for plane in planes:
        bits = integers >> plane.up & ((1 << plane.bits) - 1) if plane.bits < 8 else integers
        runs = bits.reshape(len(integers), count // plane.run, 8 // plane.bits, plane.span)
        shifts = np.arange(0, 8, plane.bits, dtype=np.uint8)[:, np.newaxis]
        joined = np.bitwise_or.reduce(runs << shifts, axis=2).reshape(len(integers), -1)
        packed[:, plane.at : plane.at + joined.shape[1]] |= joined


def _sum(products: _Array) -> _Array:
    """Returns the sums of columns, f64."""
    return products.sum(axis=0).astype(np.float64)


def _divided(numerator: Any, denominator: Any) -> _Array:
    """Returns quotients; 0 where the divisor is 0, or the quotient is beyond f32."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = np.asarray(numerator / denominator)
    quotient[~np.isfinite(quotient)] = 0
    return quotient


def _half(numbers: _Array) -> _Array:
    """Returns numbers in f16, the greatest in place of infinities."""
    return np.clip(numbers, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16)


def _bytes(halves: _Array) -> _Array:
    return np.ascontiguousarray(halves).view(np.uint8).reshape(-1, 2)


def _quantizer(name: str, layout: BlockLayout) -> Quantizer:
    search = partial(_search, layout)
    plain = QUANTIZERS.get(name)
    if plain is not None:
        return Quantizer(plain.pack, plain.largest, weighed=search)
    ranges = _ranges(layout)
    most = max(layout.table) if layout.table is not None else max(ranges.most, -ranges.least)
    largest = min(_LARGEST, _LARGEST_HALF * ranges.sub_most * (1 if layout.minimum is not None else most))

    def pack(blocks: _Array, packed: _Array) -> None:
        _search(layout, blocks, packed, None)

    return Quantizer(pack, largest, weighed=search)


SEARCHES: Final = {name: _quantizer(name, layout) for name, layout in LAYOUTS.items() if not layout.exponent}
"""Quantizers by the name of the encoding that they write: those of ``QUANTIZERS`` with importance, and searches."""
