"""Compiles kernels so that they run on a CPU that lacks their instructions."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compile_hlo.directions import KernelSignature
from compile_hlo.emit import Helper, helper_record
from lang_core import BLOCK, Encoding, TensorSpec
from run_iree import CompileReport, compile_module, target_named
from run_iree.kernels import CpuKernels, Substitution

_CALL: Final = re.compile(
    r'(?P<indent> *)(?P<name>%\w+) = llvm\.call_intrinsic "llvm\.x86\.(?P<instruction>avx512[\w.]+)"'
    r"\((?P<total>%\w+), (?P<left>%\w+), (?P<right>%\w+)\) : \(\S+, (?P<kind>[\w<>]+), .*\n"
)
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


def compile_spelled(module: Path, compiled: Path, kernels: CpuKernels) -> CompileReport:
    """Compiles a module with kernels in which the instructions of AVX-512 are spelled out, for any CPU.

    Everything else of a kernel is as users get it; the compiler splits long vectors.
    """
    substitution = Substitution(kernels)
    spelled = module.with_suffix(".spelled.mlir")
    with module.open() as given, spelled.open("w") as made:
        made.writelines(_CALL.sub(_spelled, text) for text in substitution.lines(given))
    report = compile_module(spelled, compiled, dataclasses.replace(target_named("llvm-cpu"), kernels=None))
    return dataclasses.replace(report, kernels=substitution.used)


def _spelled(call: re.Match[str]) -> str:
    """Returns the call in plain operations: products within words of 32 bits are added to the sums one by one."""
    name, total = call["name"], call["total"]
    lines = [f"{name}_{side} = vector.bitcast {call[side]} : {call['kind']} to {_WORDS}" for side in ("left", "right")]
    if call["instruction"] == "avx512.vpdpbusd.512":
        parts, kind, product, add = _bytes(name), _WORDS, "arith.muli", "arith.addi"
    else:
        parts, kind, product, add = _halves(name), _FLOATS, "arith.mulf", "arith.addf"
    for number, part in enumerate(parts):
        lines += part
        lines.append(f"{name}_p{number} = {product} {name}_l{number}, {name}_r{number} : {kind}")
        lines.append(f"{name}_t{number} = {add} {total}, {name}_p{number} : {kind}")
        total = f"{name}_t{number}"
    # The last sum has the name of the instruction's result.
    lines[-1] = lines[-1].replace(f"{total} =", f"{name} =")
    return "".join(f"{call['indent']}{line}\n" for line in lines)


def _bytes(name: str) -> Iterator[list[str]]:
    """Yields lines that take bytes from each word, those of the left without a sign, those of the right with one."""
    for i in range(4):
        yield [
            f"{name}_down{i} = arith.constant dense<{8 * i}> : {_WORDS}",
            f"{name}_mask{i} = arith.constant dense<255> : {_WORDS}",
            f"{name}_low{i} = arith.shrui {name}_left, {name}_down{i} : {_WORDS}",
            f"{name}_l{i} = arith.andi {name}_low{i}, {name}_mask{i} : {_WORDS}",
            f"{name}_up{i} = arith.constant dense<{24 - 8 * i}> : {_WORDS}",
            f"{name}_top{i} = arith.constant dense<24> : {_WORDS}",
            f"{name}_high{i} = arith.shli {name}_right, {name}_up{i} : {_WORDS}",
            f"{name}_r{i} = arith.shrsi {name}_high{i}, {name}_top{i} : {_WORDS}",
        ]


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
