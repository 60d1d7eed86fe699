"""Lines of attention over sixteen keys, for rows of y that are computed side by side.

Rows share the loads of keys and values. Each row's numbers are added in the same order however many there are.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from run_iree.kernels._attention_keys import (
    KEYS,
    panel_scores,
    panel_value,
    panels_kept,
    places,
    stored_block,
    stored_scores,
)
from run_iree.kernels._attention_sizes import AttentionSizes
from run_iree.kernels._lines import LINE, Buffer, element_bytes
from run_iree.kernels._text import listed, loaded, prefetches

_LANES: Final = 16
_VECTOR: Final = "vector<16xf32>"
SOON: Final = "_soon"  # ends the names of places of the next sixteen keys
_SUMS: Final = 4  # registers of a row's sums that are added to at once


def of_rows(sizes: AttentionSizes, buffers: tuple[Buffer, ...], rows: Sequence[str]) -> list[str]:
    """Adds a block of keys to the sums of rows of y, which share its loads."""
    (q, k, v, *_), size = buffers, sizes.size
    lines = panels_kept(k, v, size, sizes.value_size, sizes.encoding) if sizes.panels else []
    for row in rows:
        lines += [*_asked(sizes, k, sizes.key_row, row), *_asked(sizes, v, sizes.value_row, row)]
        lines += [f"%q_head{row} = arith.muli %row{row}, %c{size} : index"]
        lines += places(f"q_place{row}_", f"%q_head{row}", size)
        for i in range(size // _LANES):
            lines += loaded(f"q{row}_{i}", f"%q_place{row}_{i}", q)
    lines += panel_scores(rows, size) if sizes.panels else stored_scores(k, rows, size, sizes.encoding)
    for row in rows:
        lines += _weights(sizes.own, row)
    for j in range(KEYS):
        lines.append(f"%value{j} = arith.addi %v_block, %c{j * sizes.value_row} : index")
        if sizes.encoding is None:
            lines += places(f"v_place{j}_", f"%value{j}", sizes.value_size)
    steps = range(sizes.value_size // _LANES)
    for first in steps[::_SUMS]:
        lines += _sums(sizes, v, rows, steps[first : first + _SUMS])
    return lines


class Share(NamedTuple):
    """Elements of the next sixteen keys, or of their values, that a row of y asks for ahead.

    Attributes:
        lines: start of its cache lines.
        row: start of the next row's share.
        last: start of the last line of all.
    """

    lines: range
    row: int
    last: int

    @staticmethod
    def of(sizes: AttentionSizes, kind: str, columns: int) -> "Share":
        """Returns an equal share for each row: a core that asks for all lines at once waits for the first."""
        line = LINE // element_bytes(kind)
        row = -(-KEYS * columns // (line * sizes.own)) * line
        return Share(range(0, row, line), row, KEYS * columns - line)


def _asked(sizes: AttentionSizes, buffer: Buffer, columns: int, row: str) -> list[str]:
    """Asks for a row's share of the next sixteen keys, or of their values; rows that are left ask for the last line."""
    name, share = buffer.name, Share.of(sizes, buffer.kind, columns)
    return [
        f"%{name}_share{row} = arith.muli %own{row}, %c{share.row} : index",
        f"%{name}_least{row} = arith.minui %{name}_share{row}, %c{share.last} : index",
        f"%{name}_asked{row} = arith.addi %{name}_block{SOON}, %{name}_least{row} : index",
        *prefetches(f"{name}_asked{row}_", f"%{name}_asked{row}", buffer, share.lines),
    ]


def _weights(own: int, row: str) -> list[str]:
    """Makes ``%weights<row>`` of the scores, and ``%shrink<row>``, by which earlier sums count less."""
    return [
        f"%biased{row} = math.fma %scores{row}, %scale, %b{row} : {_VECTOR}",
        f"%before{row} = memref.load %most[%own{row}] : memref<{own}xf32>",
        f"%before_all{row} = vector.broadcast %before{row} : f32 to {_VECTOR}",
        *_folded(f"of_block{row}", f"%biased{row}", _greater),
        *_greater(f"%now_all{row}", f"%before_all{row}", f"%of_block{row}"),
        f"%now{row} = vector.extract %now_all{row}[0] : f32 from {_VECTOR}",
        f"memref.store %now{row}, %most[%own{row}] : memref<{own}xf32>",
        f"%less{row} = arith.subf %before_all{row}, %now_all{row} : {_VECTOR}",
        f"%shrink{row} = math.exp %less{row} : {_VECTOR}",
        f"%below{row} = arith.subf %biased{row}, %now_all{row} : {_VECTOR}",
        f"%weights{row} = math.exp %below{row} : {_VECTOR}",
        *_folded(f"part{row}", f"%weights{row}", _added),
        f"%sum_before{row} = memref.load %sum[%own{row}] : memref<{own}xf32>",
        f"%sum_before_all{row} = vector.broadcast %sum_before{row} : f32 to {_VECTOR}",
        f"%sum_less{row} = arith.mulf %sum_before_all{row}, %shrink{row} : {_VECTOR}",
        f"%sum_all{row} = arith.addf %sum_less{row}, %part{row} : {_VECTOR}",
        f"%sum_now{row} = vector.extract %sum_all{row}[0] : f32 from {_VECTOR}",
        f"memref.store %sum_now{row}, %sum[%own{row}] : memref<{own}xf32>",
    ]


def _sums(sizes: AttentionSizes, v: Buffer, rows: Sequence[str], steps: Sequence[int]) -> list[str]:
    """Adds values to some registers of the sums of rows."""
    y, lines, first = f"memref<{sizes.sums}xf32>", list[str](), steps[0]
    for row in rows:
        base = f"%own{row}" if sizes.scratch else f"%row{row}"
        lines.append(f"%y_head{row}_{first} = arith.muli {base}, %c{sizes.value_size} : index")
        for i in steps:
            lines += [
                f"%y_place{row}_{i} = arith.addi %y_head{row}_{first}, %c{_LANES * i} : index",
                f"%y_before{row}_{i} = vector.load %y[%y_place{row}_{i}] : {y}, {_VECTOR}",
            ]
    for j in range(KEYS):
        for row in rows:
            weight = f"%weight{row}_{first}_{j}"
            lines += [
                f"{weight} = vector.extract %weights{row}[{j}] : f32 from {_VECTOR}",
                f"{weight}_all = vector.broadcast {weight} : f32 to {_VECTOR}",
            ]
        if sizes.encoding is not None and not sizes.panels:
            for i in steps[::2]:
                lines += stored_block((f"v{j}_{i}", f"v{j}_{i + 1}"), f"%value{j}", i // 2, v, sizes.encoding)
        for i in steps:
            name, place = f"v{j}_{i}", f"%v_place{j}_{i}"
            if sizes.panels:
                lines += panel_value(name, j, i, sizes.value_size)
            elif sizes.encoding is None:
                lines += loaded(name, place, v)
            for row in rows:
                weight, y_now = f"%weight{row}_{first}_{j}_all", f"%y{row}_{i}_"
                lines.append(
                    f"{y_now}{j} = math.fma {weight}, %{name}, {y_now}{j - 1} : {_VECTOR}"
                    if j
                    else f"{y_now}{j} = arith.mulf {weight}, %{name} : {_VECTOR}"
                )
    for row in rows:
        for i in steps:  # added last, so that a block does not wait for the one before it
            sums = f"%y{row}_{i}_{KEYS}"
            lines += [
                f"{sums} = math.fma %y_before{row}_{i}, %shrink{row}, %y{row}_{i}_{KEYS - 1} : {_VECTOR}",
                f"vector.store {sums}, %y[%y_place{row}_{i}] : {y}, {_VECTOR}",
            ]
    return lines


def _folded(name: str, value: str, joined: Callable[[str, str, str], list[str]]) -> list[str]:
    """Makes ``%name``, each lane of which has all lanes of a vector joined: by halves, so that all are the same."""
    lines, half = list[str](), _LANES // 2
    while half:
        turned = listed([(lane + half) % _LANES for lane in range(_LANES)])
        result = f"%{name}" if half == 1 else f"%{name}_by{half}"
        lines += [
            f"%{name}_turned{half} = vector.shuffle {value}, {value} {turned} : {_VECTOR}, {_VECTOR}",
            *joined(result, value, f"%{name}_turned{half}"),
        ]
        value, half = result, half // 2
    return lines


def _added(name: str, a: str, b: str) -> list[str]:
    return [f"{name} = arith.addf {a}, {b} : {_VECTOR}"]


def _greater(name: str, a: str, b: str) -> list[str]:
    """Makes the greater of two; a number that is none shows in the weights."""
    return [
        f"{name}_more = arith.cmpf ogt, {a}, {b} : {_VECTOR}",
        f"{name} = arith.select {name}_more, {a}, {b} : vector<16xi1>, {_VECTOR}",
    ]
