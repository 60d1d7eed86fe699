"""Sixteen keys and their values as attention reads them: as they lie, or as panels that several queries share.

Panels are f32 on the stack, made for the first query of a workgroup that sees the keys. Keys are turned: a register has
one of their H numbers, of all sixteen, so that a query's scores do not need sums of lanes.
"""

from collections.abc import Sequence
from typing import Final

from lang_core import Encoding
from run_iree.kernels._cache_blocks import read_block
from run_iree.kernels._lines import Buffer
from run_iree.kernels._text import listed, loaded, scratch, turned, within

KEYS: Final = 16
_LANES: Final = 16
_VECTOR: Final = "vector<16xf32>"
MOST_TOGETHER: Final = 4  # rows of y that are computed side by side
_AT_ONCE: Final = 4  # lanes of a key whose products are added up side by side


def panel_bytes(size: int, value_size: int) -> int:
    """Returns the bytes of stack that the panels need."""
    return 4 * (KEYS * (size + value_size) + MOST_TOGETHER * size)


def panel_scratch(size: int, value_size: int) -> list[str]:
    """Allocates the panels, initially without keys, and space for queries."""
    return [
        scratch("kept_k", f"memref<{KEYS * size}xf32>"),
        scratch("kept_v", f"memref<{KEYS * value_size}xf32>"),
        scratch("kept_q", f"memref<{MOST_TOGETHER * size}xf32>"),
        "%kept = memref.alloca() : memref<1xi32>",
        "%kept_none = arith.constant -1 : i32",
        "memref.store %kept_none, %kept[%c0] : memref<1xi32>",
    ]


def panels_kept(k: Buffer, v: Buffer, size: int, value_size: int, encoding: Encoding | None = None) -> list[str]:
    """Makes the panels of block ``%block``, from ``%k_block`` and ``%v_block`` on, unless they hold it."""
    step = _LANES if encoding is None else encoding.block
    return [
        "%kept_block = memref.load %kept[%c0] : memref<1xi32>",
        "%this_block = arith.index_cast %block : index to i32",
        "%stale = arith.cmpi ne, %kept_block, %this_block : i32",
        "scf.if %stale {",
        "  memref.store %this_block, %kept[%c0] : memref<1xi32>",
        f"  scf.for %column = %c0 to %c{size} step %c{step} {{",
        *within(_turned_keys(k, size) if encoding is None else _turned_blocks(k, size, encoding), 4),
        "  }",
        f"  scf.for %column = %c0 to %c{value_size} step %c{step} {{",
        *within(_values(v, value_size) if encoding is None else _value_blocks(v, value_size, encoding), 4),
        "  }",
        "}",
    ]


def _turned_keys(k: Buffer, size: int) -> list[str]:
    lines = []
    for j in range(KEYS):
        lines += [
            f"%kept_row{j} = arith.addi %k_block, %c{j * size} : index",
            f"%kept_at{j} = arith.addi %kept_row{j}, %column : index",
            *loaded(f"kept_key{j}", f"%kept_at{j}", k),
        ]
    return [*lines, *_keys_stored([f"%kept_key{j}" for j in range(KEYS)], size)]


def _keys_stored(keys: Sequence[str], size: int, half: int = 0) -> list[str]:
    """Stores registers of sixteen keys to their panel, turned: from number ``%column`` on, or the half of a block."""
    mark = f"h{half}_" if half else ""
    names, more = turned(keys, (1, 2, 4, 8), "f32", f"kept_turn{mark}")
    lines = [*more, f"%kept_{mark}to = arith.muli %column, %c{KEYS} : index"]
    for number, name in enumerate(names):
        lines += [
            f"%kept_{mark}skip{number} = arith.constant {(half * _LANES + number) * KEYS} : index",
            f"%kept_{mark}to{number} = arith.addi %kept_{mark}to, %kept_{mark}skip{number} : index",
            f"vector.store {name}, %kept_k[%kept_{mark}to{number}] : memref<{KEYS * size}xf32>, {_VECTOR}",
        ]
    return lines


def _turned_blocks(k: Buffer, size: int, encoding: Encoding) -> list[str]:
    """Stores a block of each key, from number ``%column`` on."""
    lines, row = _block_skip("k", encoding), size // encoding.block * encoding.block_bytes
    for j in range(KEYS):
        lines += [
            f"%kept_row{j} = arith.constant {j * row} : index",
            f"%kept_at{j} = arith.addi %k_column, %kept_row{j} : index",
            *read_block((f"kept_low{j}", f"kept_high{j}"), f"%kept_at{j}", k, encoding),
        ]
    low, high = ([f"%kept_{side}{j}" for j in range(KEYS)] for side in ("low", "high"))
    return [*lines, *_keys_stored(low, size), *_keys_stored(high, size, 1)]


def _value_blocks(v: Buffer, value_size: int, encoding: Encoding) -> list[str]:
    """Stores a block of each value, from number ``%column`` on."""
    lines, row = _block_skip("v", encoding), value_size // encoding.block * encoding.block_bytes
    panel = f"memref<{KEYS * value_size}xf32>, {_VECTOR}"
    for j in range(KEYS):
        lines += [
            f"%kept_row{j} = arith.constant {j * row} : index",
            f"%kept_at{j} = arith.addi %v_column, %kept_row{j} : index",
            *read_block((f"kept_low{j}", f"kept_high{j}"), f"%kept_at{j}", v, encoding),
        ]
        for half, side in enumerate(("low", "high")):
            lines += [
                f"%kept_skip{j}_{half} = arith.constant {j * value_size + half * _LANES} : index",
                f"%kept_to{j}_{half} = arith.addi %column, %kept_skip{j}_{half} : index",
                f"vector.store %kept_{side}{j}, %kept_v[%kept_to{j}_{half}] : {panel}",
            ]
    return lines


def _block_skip(name: str, encoding: Encoding) -> list[str]:
    """Makes ``%<name>_column``, the first byte of the first entry's block with number ``%column``."""
    return [
        f"%{name}_block_size = arith.constant {encoding.block} : index",
        f"%{name}_block_bytes = arith.constant {encoding.block_bytes} : index",
        f"%{name}_before = arith.divui %column, %{name}_block_size : index",
        f"%{name}_skipped = arith.muli %{name}_before, %{name}_block_bytes : index",
        f"%{name}_column = arith.addi %{name}_block, %{name}_skipped : index",
    ]


def stored_block(names: tuple[str, str], row: str, block: int, buffer: Buffer, encoding: Encoding) -> list[str]:
    """Makes two registers by name: a block of the entry that begins at a byte."""
    place = f"%{names[0]}_block"
    at = f"{place} = arith.addi {row}, %c{block * encoding.block_bytes} : index"
    return [at, *read_block(names, place, buffer, encoding)]


def _values(v: Buffer, value_size: int) -> list[str]:
    lines = []
    for j in range(KEYS):
        lines += [
            f"%kept_row{j} = arith.addi %v_block, %c{j * value_size} : index",
            f"%kept_at{j} = arith.addi %kept_row{j}, %column : index",
            *loaded(f"kept_value{j}", f"%kept_at{j}", v),
            f"%kept_to{j} = arith.addi %column, %c{j * value_size} : index",
            f"vector.store %kept_value{j}, %kept_v[%kept_to{j}] : memref<{KEYS * value_size}xf32>, {_VECTOR}",
        ]
    return lines


def panel_scores(rows: Sequence[str], size: int) -> list[str]:
    """Makes ``%scores<row>`` of the queries ``%q<row>_<i>``, with the sums of ``stored_scores``.

    There a lane has every sixteenth number of a key, and lanes are added by halves; here these are registers.
    """
    queries, panel = f"memref<{MOST_TOGETHER * size}xf32>", f"memref<{KEYS * size}xf32>"
    lines = []
    for place, row in enumerate(rows):
        for i in range(size // _LANES):
            lines += [
                f"%kept_q{row}_{i} = arith.constant {place * size + _LANES * i} : index",
                f"vector.store %q{row}_{i}, %kept_q[%kept_q{row}_{i}] : {queries}, {_VECTOR}",
            ]

    def products(lanes: Sequence[int]) -> None:
        """Adds the products of some lanes, which do not wait for each other, up to ``%more<row>_<last number>``."""
        for number in (first + lane for first in range(0, size, _LANES) for lane in lanes):
            lines.extend(
                [
                    f"%number_at{number} = arith.constant {number * KEYS} : index",
                    f"%keys{number} = vector.load %kept_k[%number_at{number}] : {panel}, {_VECTOR}",
                ]
            )
            for place, row in enumerate(rows):
                name, total = f"{row}_{number}", "%none" if number < _LANES else f"%more{row}_{number - _LANES}"
                lines.extend(
                    [
                        f"%number{name} = arith.constant {place * size + number} : index",
                        f"%one{name} = memref.load %kept_q[%number{name}] : {queries}",
                        f"%all{name} = vector.broadcast %one{name} : f32 to {_VECTOR}",
                        f"%more{name} = math.fma %all{name}, %keys{number}, {total} : {_VECTOR}",
                    ]
                )

    def added(lane: int, apart: int) -> dict[str, str]:
        """Returns the sums of every so manieth lane from one on, by rows."""
        if apart == _LANES:
            return {row: f"%more{row}_{size - _LANES + lane}" for row in rows}
        if apart == _LANES // _AT_ONCE:
            products(range(lane, _LANES, apart))
        low, high = added(lane, 2 * apart), added(lane + apart, 2 * apart)
        names = {row: f"%scores{row}" if apart == 1 else f"%added{row}_{lane}_{apart}" for row in rows}
        lines.extend(f"{names[row]} = arith.addf {low[row]}, {high[row]} : {_VECTOR}" for row in rows)
        return names

    added(0, 1)
    return lines


def panel_value(name: str, j: int, i: int, value_size: int) -> list[str]:
    """Makes ``%name``, register ``i`` of the value of key ``j``."""
    return [
        f"%{name}_kept = arith.constant {j * value_size + i * _LANES} : index",
        f"%{name} = vector.load %kept_v[%{name}_kept] : memref<{KEYS * value_size}xf32>, {_VECTOR}",
    ]


def places(name: str, base: str, size: int) -> list[str]:
    """Makes the indices ``%<name>0``, ``%<name>1``, ... of the vectors of a row from ``base`` on."""
    return [f"%{name}{i} = arith.addi {base}, %c{_LANES * i} : index" for i in range(size // _LANES)]


def stored_scores(k: Buffer, rows: Sequence[str], size: int, encoding: Encoding | None = None) -> list[str]:
    """Makes ``%scores<row>`` of the queries ``%q<row>_<i>`` and the keys from ``%k_block`` on."""
    lines: list[str] = []

    def added(first: int, apart: int) -> dict[str, str]:
        """Returns registers with parts of the dot products of every so manieth key from one on, by rows."""
        if apart == KEYS:
            lines.extend(_dots(k, rows, first, size, encoding))
            return {row: f"%dot{row}_{first}_{size // _LANES - 1}" for row in rows}
        low, high = added(first, 2 * apart), added(first + apart, 2 * apart)
        names = {row: f"%scores{row}" if apart == 1 else f"%folded{row}_{apart}_{first}" for row in rows}
        for row in rows:
            lines.extend(_halves_added(names[row], low[row], high[row], apart))
        return names

    added(0, 1)
    return lines


def _dots(k: Buffer, rows: Sequence[str], j: int, size: int, encoding: Encoding | None) -> list[str]:
    """Makes the products ``%dot<row>_<j>_<last>`` of queries with key ``j``, before the lanes are added."""
    width = size if encoding is None else size // encoding.block * encoding.block_bytes
    lines = [f"%key{j} = arith.addi %k_block, %c{j * width} : index"]
    if encoding is None:
        lines += places(f"k_place{j}_", f"%key{j}", size)
    for i in range(size // _LANES):
        if encoding is None:
            lines += loaded(f"k{j}_{i}", f"%k_place{j}_{i}", k)
        elif i % 2 == 0:
            lines += stored_block((f"k{j}_{i}", f"k{j}_{i + 1}"), f"%key{j}", i // 2, k, encoding)
        for row in rows:
            before = "%none" if i == 0 else f"%dot{row}_{j}_{i - 1}"
            lines.append(f"%dot{row}_{j}_{i} = math.fma %q{row}_{i}, %k{j}_{i}, {before} : {_VECTOR}")
    return lines


def _halves_added(name: str, low: str, high: str, half: int) -> list[str]:
    """Adds the lanes of two registers by halves.

    A register has a part of each so manieth key: those of two are joined, lower halves and upper ones.
    """
    lower = [
        _LANES * (part % 2) + part // 2 * 2 * half + lane for part in range(_LANES // half) for lane in range(half)
    ]
    pair = f"{low}, {high}"
    return [
        f"{name}_low = vector.shuffle {pair} {listed(lower)} : {_VECTOR}, {_VECTOR}",
        f"{name}_high = vector.shuffle {pair} {listed([lane + half for lane in lower])} : {_VECTOR}, {_VECTOR}",
        f"{name} = arith.addf {name}_low, {name}_high : {_VECTOR}",
    ]
