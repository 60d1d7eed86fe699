"""Puts kernels in the place of helper functions, in a module's text."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from lang_core import BLOCK, Encoding, encoding_named
from run_iree.kernels._attention import AttentionSizes, attention_kernel
from run_iree.kernels._avx2_matmul import avx2_matmul_kernel
from run_iree.kernels._avx2_matvec import avx2_matvec_kernel, fits_avx2_matvec
from run_iree.kernels._fma_matmul import fma_matmul_kernel
from run_iree.kernels._k_vector import k_vector_kernel
from run_iree.kernels._lanes_matmul import ROWS as LANES_ROWS
from run_iree.kernels._norm import Norm, norm_kernel
from run_iree.kernels._quantize import quantize_kernel, silu_quantize_kernel
from run_iree.kernels._text import Arrangement, Kernel, entry_name
from run_iree.kernels._vector import vector_kernel
from run_iree.kernels._vnni_matmul import matmul_kernel
from run_iree.kernels._vnni_matvec import fits_matvec, matvec_kernel
from run_iree.kernels._vnni_panel import ROWS
from run_iree.kernels._wide_matmul import PANEL_ROWS, wide_matmul_kernel
from run_iree.kernels._wide_matvec import STEP, wide_matvec_kernel

_QUANTIZE: Final = re.compile(r"(?P<of>block|silu)_quantize\.(?P<dtype>\w+)\.(?P<rows>\d+)x(?P<columns>\d+)")
_PACKED: Final = re.compile(
    r"packed_linear\.(?P<encoding>\w+)\.(?P<dtype>\w+)\.(?P<rows>\d+)x(?P<outputs>\d+)x(?P<columns>\d+)"
)
_WIDE: Final = re.compile(r"linear\.(?P<dtype>\w+)\.(?P<result>\w+)\.(?P<rows>\d+)x(?P<outputs>\d+)x(?P<columns>\d+)")
_ATTENTION: Final = re.compile(
    r"cached_attention(?P<blocks>_quantize)?\.(?P<dtype>\w+)\.(?P<sizes>\d+(?:x\d+){7})\.(?P<scale>m?0x[\da-fmp.]+)"
)
_NORM: Final = re.compile(
    r"rms_norm_quantize\.(?P<dtype>\w+)\.(?P<rows>\d+)x(?P<columns>\d+)"
    r"\.(?P<weight>\w+?)(?P<centred>\.centred)?\.(?P<eps>m?0x[\da-fmp.]+)"
)
_HEAD: Final = re.compile(r"  func\.func private @(?P<name>[\w.]+)\((?P<arguments>.*)\) -> \((?P<results>.*)\) \{\n")
_DTYPE: Final = re.compile(r"(?:bf|f|i)\d+>$")
# Twice 4 KiB is 8 % slower than this on an EPYC; half of it as fast.
_AHEAD: Final = 6912
_END: Final = "  }\n"
_FMA: Final = frozenset({"avx2", "fma", "f16c"})
_AVX512: Final = _FMA | {"avx512f", "avx512bw", "avx512vl"}
_VNNI: Final = _AVX512 | {"avx512_vnni"}
_BF16: Final = _AVX512 | {"avx512_bf16"}


@dataclass(frozen=True, slots=True)
class CpuKernels:
    """Which kernels a CPU gets.

    Attributes:
        vnni: whether those for AVX-512 VNNI.
        bf16: whether those for AVX512_BF16.
        avx512: whether those for AVX-512.
        fma: whether those for AVX2 with FMA and F16C.
        ahead: how many bytes ahead those for one token ask memory; 0 where they do not. Those for AVX2 with packed
            weights always do: what they have to compute keeps a core from looking ahead itself.
    """

    vnni: bool = False
    bf16: bool = False
    avx512: bool = False
    fma: bool = False
    ahead: int = _AHEAD

    @staticmethod
    def of(features: Iterable[str], model: str = "") -> "CpuKernels":
        """Those for a CPU with these features, of this model, as /proc/cpuinfo calls them.

        AMD's prefetchers follow a row by themselves: to ask costs 4 % of a step in bf16.
        """
        here = frozenset(features)
        ahead = 0 if model.startswith("AMD") else _AHEAD
        return CpuKernels(here >= _VNNI, here >= _BF16, here >= _AVX512, here >= _FMA, ahead)

    def kernel(self, function: str) -> Kernel | None:
        """The kernel for a helper function; None where the compiler's code is to be taken."""
        found = _QUANTIZE.fullmatch(function)
        if found is not None:
            make = quantize_kernel if found["of"] == "block" else silu_quantize_kernel
            return make(int(found["rows"]), int(found["columns"]), found["dtype"])
        found = _NORM.fullmatch(function)
        if found is not None:
            return _norm(found)
        found = _ATTENTION.fullmatch(function)
        if found is not None:
            return _attention(
                found["dtype"],
                tuple(map(int, found["sizes"].split("x"))),
                _number(found["scale"]),
                blocks=found["blocks"] is not None,
            )
        found = _WIDE.fullmatch(function)
        if found is not None:
            return self._wide(*_sizes(found), found["dtype"], found["result"])
        found = _PACKED.fullmatch(function)
        if found is None:
            return None
        return self._packed(*_sizes(found), encoding_named(found["encoding"]), found["dtype"])

    def _wide(self, rows: int, outputs: int, columns: int, kind: str, result: str) -> Kernel | None:
        pairs = self.bf16 and kind == "bf16"
        if columns % STEP or not self.fma:
            return None
        if rows == 1:
            return wide_matvec_kernel(outputs, columns, (kind, result), pairs=pairs, ahead=self.ahead)
        if self.avx512 and outputs % PANEL_ROWS == 0:
            return wide_matmul_kernel(rows, outputs, columns, kind, pairs=pairs)
        return None if outputs % LANES_ROWS else fma_matmul_kernel(rows, outputs, columns, (kind, result))

    def _packed(self, rows: int, outputs: int, columns: int, encoding: Encoding, dtype: str) -> Kernel:
        kind = dtype if dtype in ("bf16", "f16") else "f32"
        if self.vnni and rows == 1 and fits_matvec(columns, encoding):
            return matvec_kernel(outputs, columns, encoding, kind, ahead=self.ahead)
        if self.fma and rows == 1 and fits_avx2_matvec(columns, encoding):
            return avx2_matvec_kernel(outputs, columns, encoding, kind, ahead=_AHEAD)
        if self.vnni and rows > 1 and outputs % ROWS == 0:
            return matmul_kernel(rows, outputs, columns, encoding)
        if self.fma and rows > 1 and outputs % LANES_ROWS == 0:
            return avx2_matmul_kernel(rows, outputs, columns, encoding, kind)
        if encoding.block != BLOCK:
            return k_vector_kernel(rows, outputs, columns, encoding, kind)
        return vector_kernel(rows, outputs, columns, encoding, kind)


def _sizes(found: re.Match[str]) -> tuple[int, int, int]:
    """Rows, outputs and columns of a product."""
    return int(found["rows"]), int(found["outputs"]), int(found["columns"])


def _number(name: str) -> float:
    """What emission wrote as ``in_name``."""
    return float.fromhex(name.replace("m", "-"))


def _norm(found: re.Match[str]) -> Kernel:
    weight = None if found["weight"] == "plain" else found["weight"]
    centred, eps = found["centred"] is not None, _number(found["eps"])
    return norm_kernel(Norm(int(found["rows"]), int(found["columns"]), found["dtype"], weight, centred, eps))


def _attention(dtype: str, sizes: tuple[int, ...], scale: float, *, blocks: bool) -> Kernel | None:
    found = AttentionSizes(*sizes)
    fits = found.fit_blocks() if blocks else found.fit()
    return attention_kernel(found, dtype, scale, blocks=blocks) if fits else None


@dataclass(slots=True)
class Substitution:
    """A module's text with kernels in it.

    Attributes:
        kernels: of a target.
        used: the kernel's name, by function, of those that were put in so far.
    """

    kernels: CpuKernels
    used: dict[str, str] = field(default_factory=dict)
    _arrangements: set[str] = field(default_factory=set)

    def lines(self, source: Iterable[str]) -> Iterator[str]:
        """The lines of the module; the lines before the first helper function are where they were."""
        lines = iter(source)
        for line in lines:
            head = _HEAD.fullmatch(line)
            kernel = None if head is None else self.kernels.kernel(head["name"])
            if head is None or kernel is None:
                yield line
                continue
            for inner in lines:
                if inner == _END:
                    break
            self.used[head["name"]] = kernel.name
            yield _call(head["name"], head["arguments"], head["results"], kernel)
            yield kernel.executable(head["name"])
            yield from self._arrangement(kernel.arrangement)

    def _arrangement(self, found: Arrangement | None) -> Iterator[str]:
        """Its executable, once."""
        if found is not None and found.function not in self._arrangements:
            self._arrangements.add(found.function)
            yield found.kernel.executable(found.function)


def _call(name: str, arguments: str, results: str, kernel: Kernel) -> str:
    """The helper function with a dispatch of the kernel as its body; a result that is of another dtype is converted."""
    names, kinds = zip(*(each.split(": ", 1) for each in arguments.split(", %")), strict=True)
    operands = [f"%{each.removeprefix('%')}" for each in names]
    lines = []
    if kernel.arrangement is not None:
        lines, operands, kinds = _arranged(kernel.arrangement, operands, kinds)
    wanted = results.split(", ")
    made = [
        _DTYPE.sub(buffer.kind + ">", kind) for kind, buffer in zip(wanted, kernel.buffers[len(kinds) :], strict=True)
    ]
    count = f":{len(made)}" if len(made) > 1 else ""
    found = [f"%r#{i}" for i in range(len(made))] if count else ["%r"]
    lines.append(f"%r{count} = {_dispatch(name, operands, kinds, made)}")
    for i, (kind, other) in enumerate(zip(made, wanted, strict=True)):
        if kind != other:
            lines.append(f"%wanted{i} = stablehlo.convert {found[i]} : ({kind}) -> {other}")
            found[i] = f"%wanted{i}"
    lines.append(f"return {', '.join(found)} : {results}")
    body = "".join(f"    {line}\n" for line in lines)
    return f"  func.func private @{name}({arguments}) -> ({results}) {{\n{body}  }}\n"


def _arranged(
    arrangement: Arrangement, operands: Sequence[str], kinds: Sequence[str]
) -> tuple[list[str], list[str], tuple[str, ...]]:
    """The line of a dispatch of all operands but the last; what is then left of them, and their types."""
    made = arrangement.kernel.buffers[-1]
    kind = f"tensor<{made.elements}x{made.kind}>"
    line = f"%arranged = {_dispatch(arrangement.function, operands[:-1], kinds[:-1], [kind])}"
    return [line], ["%arranged", operands[-1]], (kind, kinds[-1])


def _dispatch(function: str, operands: Sequence[str], kinds: Sequence[str], made: Sequence[str]) -> str:
    given = f"({', '.join(made)})" if len(made) > 1 else made[0]
    target = f"@kernel.{function}::@{entry_name(function)}"
    return f"flow.dispatch {target}({', '.join(operands)}) : ({', '.join(kinds)}) -> {given}"
