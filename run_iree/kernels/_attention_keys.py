"""Sixteen keys and their values as attention reads them: as they lie, or as panels that several queries share.

Panels are f32 on the stack, made for the first query of a workgroup that sees the keys. Keys are turned: a register has
one of their H numbers, of all sixteen, so that a query's scores need no sums of lanes.
"""

from collections.abc import Sequence
from typing import Final

from run_iree.kernels._text import Buffer, loaded, scratch, turned, within

KEYS: Final = 16
_LANES: Final = 16
_VECTOR: Final = "vector<16xf32>"
_SUMS: Final = 4  # that do not wait for each other
_AT_ONCE: Final = 8  # numbers of a key in the body of the loop


def panel_bytes(size: int, value_size: int) -> int:
    """Returns the bytes of stack that the panels need."""
    return 4 * (KEYS * (size + value_size) + size)


def panel_scratch(size: int, value_size: int) -> list[str]:
    """Allocates the panels, which hold no block of keys."""
    return [
        scratch("kept_k", f"memref<{KEYS * size}xf32>"),
        scratch("kept_v", f"memref<{KEYS * value_size}xf32>"),
        scratch("kept_q", f"memref<{size}xf32>"),
        "%kept = memref.alloca() : memref<1xi32>",
        "%kept_none = arith.constant -1 : i32",
        "memref.store %kept_none, %kept[%c0] : memref<1xi32>",
    ]


def panels_kept(k: Buffer, v: Buffer, size: int, value_size: int) -> list[str]:
    """Makes the panels of block ``%block``, from ``%k_block`` and ``%v_block`` on, unless they hold it."""
    return [
        "%kept_block = memref.load %kept[%c0] : memref<1xi32>",
        "%this_block = arith.index_cast %block : index to i32",
        "%stale = arith.cmpi ne, %kept_block, %this_block : i32",
        "scf.if %stale {",
        "  memref.store %this_block, %kept[%c0] : memref<1xi32>",
        f"  scf.for %column = %c0 to %c{size} step %c{_LANES} {{",
        *within(_turned_keys(k, size), 4),
        "  }",
        f"  scf.for %column = %c0 to %c{value_size} step %c{_LANES} {{",
        *within(_values(v, value_size), 4),
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
    names, more = turned([f"%kept_key{j}" for j in range(KEYS)], (1, 2, 4, 8), "f32", "kept_turn")
    lines += [*more, f"%kept_to = arith.muli %column, %c{KEYS} : index"]
    for number, name in enumerate(names):
        lines += [
            f"%kept_skip{number} = arith.constant {number * KEYS} : index",
            f"%kept_to{number} = arith.addi %kept_to, %kept_skip{number} : index",
            f"vector.store {name}, %kept_k[%kept_to{number}] : memref<{KEYS * size}xf32>, {_VECTOR}",
        ]
    return lines


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


def panel_scores(query: Sequence[str], size: int) -> list[str]:
    """Makes ``%scores`` of the registers of a query."""
    row, panel = f"memref<{size}xf32>", f"memref<{KEYS * size}xf32>"
    lines = []
    for i, name in enumerate(query):
        lines += [
            f"%kept_q{i} = arith.constant {_LANES * i} : index",
            f"vector.store {name}, %kept_q[%kept_q{i}] : {row}, {_VECTOR}",
        ]
    kinds = ", ".join([_VECTOR] * _SUMS)
    lines += [
        f"%kept_step = arith.constant {_AT_ONCE} : index",
        f"%made:{_SUMS} = scf.for %number = %c0 to %c{size} step %kept_step "
        f"iter_args({', '.join(f'%score{i} = %none' for i in range(_SUMS))}) -> ({kinds}) {{",
    ]
    sums = [f"%score{i}" for i in range(_SUMS)]
    for i in range(_AT_ONCE):
        after = f"%more{i}"
        lines += [
            f"  %number_skip{i} = arith.constant {i} : index",
            f"  %number{i} = arith.addi %number, %number_skip{i} : index",
            f"  %one{i} = memref.load %kept_q[%number{i}] : {row}",
            f"  %all{i} = vector.broadcast %one{i} : f32 to {_VECTOR}",
            f"  %number_at{i} = arith.muli %number{i}, %c{KEYS} : index",
            f"  %keys{i} = vector.load %kept_k[%number_at{i}] : {panel}, {_VECTOR}",
            f"  {after} = math.fma %all{i}, %keys{i}, {sums[i % _SUMS]} : {_VECTOR}",
        ]
        sums[i % _SUMS] = after
    return [
        *lines,
        f"  scf.yield {', '.join(sums)} : {kinds}",
        "}",
        f"%scores_even = arith.addf %made#0, %made#2 : {_VECTOR}",
        f"%scores_odd = arith.addf %made#1, %made#3 : {_VECTOR}",
        f"%scores = arith.addf %scores_even, %scores_odd : {_VECTOR}",
    ]


def panel_value(name: str, j: int, i: int, value_size: int) -> list[str]:
    """Makes ``%name``, register ``i`` of the value of key ``j``."""
    return [
        f"%{name}_kept = arith.constant {j * value_size + i * _LANES} : index",
        f"%{name} = vector.load %kept_v[%{name}_kept] : memref<{KEYS * value_size}xf32>, {_VECTOR}",
    ]


def places(name: str, base: str, size: int) -> list[str]:
    """Makes the indices ``%<name>0``, ``%<name>1``, ... of the vectors of a row from ``base`` on."""
    return [f"%{name}{i} = arith.addi {base}, %c{_LANES * i} : index" for i in range(size // _LANES)]


def stored_scores(k: Buffer, size: int) -> list[str]:
    """Makes ``%scores`` of the registers ``%q<i>`` of a query and the keys from ``%k_block`` on."""
    lines: list[str] = []
    for j in range(KEYS):
        lines.append(f"%key{j} = arith.addi %k_block, %c{j * size} : index")
        lines += places(f"k_place{j}_", f"%key{j}", size)
        for i in range(size // _LANES):
            lines += loaded(f"k{j}_{i}", f"%k_place{j}_{i}", k)
            before = "%none" if i == 0 else f"%dot{j}_{i - 1}"
            lines.append(f"%dot{j}_{i} = math.fma %q{i}, %k{j}_{i}, {before} : {_VECTOR}")
        lines.append(f"%score{j} = vector.reduction <add>, %dot{j}_{size // _LANES - 1} : {_VECTOR} into f32")
    scores = ", ".join(f"%score{j}" for j in range(KEYS))
    return [*lines, f"%scores = vector.from_elements {scores} : {_VECTOR}"]
