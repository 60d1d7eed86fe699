"""Compiles kernels so that they run on a CPU that lacks their instructions."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compile_hlo.directions import KernelSignature
from compile_hlo.emit import Helper, helper_record
from lang_core import BLOCK, Encoding, TensorSpec
from run_iree import CompileReport, compile_module, host_cpu, target_named
from run_iree.kernels import CpuKernels, Substitution

_CALL: Final = re.compile(
    r'(?P<indent> *)(?P<name>%\w+) = llvm\.call_intrinsic "llvm\.x86\.(?P<instruction>avx512[\w.]+)"'
    r"\((?P<operands>[^)]*)\) : \((?P<kinds>[^)]*)\) -> .*\n"
)
# The feature of a CPU that has an instruction, where that is not AVX-512BW.
_FEATURES: Final = {"avx512.vpdpbusd.512": "avx512_vnni", "avx512bf16.dpbf16ps.512": "avx512_bf16"}
_WORDS: Final = "vector<16xi32>"
_FLOATS: Final = "vector<16xf32>"


def packed_linear(
    encoding: Encoding, sizes: tuple[int, int, int], dtype: str = "f32", *, planes: int = 1
) -> KernelSignature:
    """Returns the record of a product with packed weights, of (rows, outputs, columns)."""
    rows, outputs, columns = sizes
    blocks = rows, columns // BLOCK
    given = (
        TensorSpec((rows, planes, columns), "i8"),
        TensorSpec(blocks, "f32"),
        TensorSpec(blocks, "i32"),
        TensorSpec((outputs, columns // encoding.block * encoding.block_bytes), "i8"),
    )
    helper = Helper(
        "packed_linear", f"{encoding.name}.{dtype}.{rows}x{outputs}x{columns}.{planes}", {"encoding": encoding.name}
    )
    return helper_record(helper, given, [TensorSpec((rows, outputs), dtype)])


def compile_spelled(module: Path, compiled: Path, kernels: CpuKernels, *, everything: bool = False) -> CompileReport:
    """Compiles a module with kernels in which the instructions of AVX-512 are spelled out, for any CPU.

    Everything else of a kernel is as users get it; the compiler splits long vectors.

    Args:
        module: text of the module.
        compiled: file to write.
        kernels: kernels to use.
        everything: whether instructions that this CPU has are spelled out, too.
    """
    substitution = Substitution(kernels)
    spelled = module.with_suffix(".spelled.mlir")
    features = () if everything else host_cpu().features

    def replaced(call: re.Match[str]) -> str:
        return call[0] if _FEATURES.get(call["instruction"], "avx512bw") in features else _spelled(call)

    with module.open() as given, spelled.open("w") as made:
        made.writelines(_CALL.sub(replaced, text) for text in substitution.lines(given))
    report = compile_module(spelled, compiled, dataclasses.replace(target_named("llvm-cpu"), kernels=None))
    return dataclasses.replace(report, kernels=substitution.used)


def _spelled(call: re.Match[str]) -> str:
    """Returns the call in plain operations."""
    name, instruction, operands = call["name"], call["instruction"], call["operands"].split(", ")
    if instruction == "avx512.permvar.hi.512":
        lines = _looked_up(name, *operands)
    elif instruction == "avx512.pmaddubs.w.512":
        lines = _byte_pairs(name, *operands)
    elif instruction.startswith("avx512.mask.scalef.ps."):
        lines = _scaled(name, operands[0], operands[1], int(instruction.rsplit(".", 1)[1]) // 32)
    else:
        kind = call["kinds"].split(", ")[-1]
        lines = _dot(name, instruction, operands, kind)
    return "".join(f"{call['indent']}{line}\n" for line in lines)


def _dot(name: str, instruction: str, operands: list[str], kind: str) -> list[str]:
    """Returns lines that add products within words of 32 bits to the sums one by one."""
    *total, left, right = operands
    sides = (("left", left), ("right", right))
    lines = [f"{name}_{side} = vector.bitcast {value} : {kind} to {_WORDS}" for side, value in sides]
    if instruction == "avx512bf16.dpbf16ps.512":
        parts, kind, product, add = _halves(name), _FLOATS, "arith.mulf", "arith.addf"
    else:
        parts = _integers(name, *((8, False) if instruction == "avx512.vpdpbusd.512" else (16, True)))
        kind, product, add = _WORDS, "arith.muli", "arith.addi"
    if not total:
        lines.append(f"{name}_none = arith.constant dense<0> : {_WORDS}")
    so_far = total[0] if total else f"{name}_none"
    for number, part in enumerate(parts):
        lines += part
        lines.append(f"{name}_p{number} = {product} {name}_l{number}, {name}_r{number} : {kind}")
        lines.append(f"{name}_t{number} = {add} {so_far}, {name}_p{number} : {kind}")
        so_far = f"{name}_t{number}"
    # The last sum has the name of the instruction's result.
    lines[-1] = lines[-1].replace(f"{so_far} =", f"{name} =")
    return lines


def _looked_up(name: str, table: str, numbers: str) -> list[str]:
    """Returns lines that choose, for each number, of the 32 entries of a table one after the other."""
    pairs, masks = "vector<32xi16>", "vector<32xi1>"
    lines = [
        f"{name}_five = arith.constant dense<31> : {pairs}",
        f"{name}_low = arith.andi {numbers}, {name}_five : {pairs}",
        f"{name}_chosen0 = vector.shuffle {table}, {table} [{', '.join(['0'] * 32)}] : {pairs}, {pairs}",
    ]
    for i in range(1, 32):
        chosen = name if i == 31 else f"{name}_chosen{i}"
        lines += [
            f"{name}_entry{i} = vector.shuffle {table}, {table} [{', '.join([str(i)] * 32)}] : {pairs}, {pairs}",
            f"{name}_number{i} = arith.constant dense<{i}> : {pairs}",
            f"{name}_is{i} = arith.cmpi eq, {name}_low, {name}_number{i} : {pairs}",
            f"{chosen} = arith.select {name}_is{i}, {name}_entry{i}, {name}_chosen{i - 1} : {masks}, {pairs}",
        ]
    return lines


def _byte_pairs(name: str, unsigned: str, signed: str) -> list[str]:
    """Returns lines that add two products of neighbouring bytes, whose sums 16 bits hold."""
    pairs, lines = "vector<32xi16>", list[str]()
    lines.append(f"{name}_by = arith.constant dense<8> : {pairs}")
    for side, given, op in (("u", unsigned, "shrui"), ("s", signed, "shrsi")):
        lines += [
            f"{name}_{side} = vector.bitcast {given} : vector<64xi8> to {pairs}",
            f"{name}_{side}up = arith.shli {name}_{side}, {name}_by : {pairs}",
            f"{name}_{side}low = arith.{op} {name}_{side}up, {name}_by : {pairs}",
            f"{name}_{side}high = arith.{op} {name}_{side}, {name}_by : {pairs}",
        ]
    return [
        *lines,
        f"{name}_low = arith.muli {name}_ulow, {name}_slow : {pairs}",
        f"{name}_high = arith.muli {name}_uhigh, {name}_shigh : {pairs}",
        f"{name} = arith.addi {name}_low, {name}_high : {pairs}",
    ]


def _scaled(name: str, values: str, exponents: str, lanes: int) -> list[str]:
    """Returns lines that multiply with two powers of two, halves of the exponents, each of which f32 can have."""
    words, floats = f"vector<{lanes}xi32>", f"vector<{lanes}xf32>"
    lines = [
        f"{name}_one = arith.constant dense<1> : {words}",
        f"{name}_bias = arith.constant dense<127> : {words}",
        f"{name}_place = arith.constant dense<23> : {words}",
        f"{name}_exponent = arith.fptosi {exponents} : {floats} to {words}",
        f"{name}_half0 = arith.shrsi {name}_exponent, {name}_one : {words}",
        f"{name}_half1 = arith.subi {name}_exponent, {name}_half0 : {words}",
    ]
    for i, (given, made) in enumerate(((values, f"{name}_first"), (f"{name}_first", name))):
        lines += [
            f"{name}_biased{i} = arith.addi {name}_half{i}, {name}_bias : {words}",
            f"{name}_bits{i} = arith.shli {name}_biased{i}, {name}_place : {words}",
            f"{name}_power{i} = arith.bitcast {name}_bits{i} : {words} to {floats}",
            f"{made} = arith.mulf {given}, {name}_power{i} : {floats}",
        ]
    return lines


def _integers(name: str, bits: int, signed: bool) -> Iterator[list[str]]:
    """Yields lines that take integers from each word: the right ones with a sign, the left ones with one or without."""
    for i in range(0, 32, bits):
        lines, number = [f"{name}_top{i} = arith.constant dense<{32 - bits}> : {_WORDS}"], i // bits
        lines.append(f"{name}_up{i} = arith.constant dense<{32 - bits - i}> : {_WORDS}")
        for short, side, op in (("l", "left", "shrsi" if signed else "shrui"), ("r", "right", "shrsi")):
            lines += [
                f"{name}_{short}high{i} = arith.shli {name}_{side}, {name}_up{i} : {_WORDS}",
                f"{name}_{short}{number} = arith.{op} {name}_{short}high{i}, {name}_top{i} : {_WORDS}",
            ]
        yield lines


def _halves(name: str) -> Iterator[list[str]]:
    """Yields lines that take both bf16 from each word as f32, whose upper halves they are."""
    for i, (shift, mask) in enumerate(((16, -65536), (0, -65536))):
        lines = [
            f"{name}_shift{i} = arith.constant dense<{shift}> : {_WORDS}",
            f"{name}_mask{i} = arith.constant dense<{mask}> : {_WORDS}",
        ]
        for short, side in (("l", "left"), ("r", "right")):
            lines += [
                f"{name}_{short}u{i} = arith.shli {name}_{side}, {name}_shift{i} : {_WORDS}",
                f"{name}_{short}m{i} = arith.andi {name}_{short}u{i}, {name}_mask{i} : {_WORDS}",
                f"{name}_{short}{i} = vector.bitcast {name}_{short}m{i} : {_WORDS} to {_FLOATS}",
            ]
        yield lines
