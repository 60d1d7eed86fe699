"""Kernels by name of a helper function, for the instruction sets of a CPU."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from lang_core import Encoding, encoding_named
from run_iree.kernels._attention import AttentionSizes, attention_kernel
from run_iree.kernels._avx2_matmul import avx2_matmul_kernel
from run_iree.kernels._avx2_matvec import avx2_matvec_kernel, fits_avx2_matvec
from run_iree.kernels._fma_matmul import fma_matmul_kernel
from run_iree.kernels._instruction_sets import PREFETCH_CANDIDATES, PREFETCH_DISTANCE, available, prefetch_distance
from run_iree.kernels._lanes_matmul import ROWS as LANES_ROWS
from run_iree.kernels._norm import Norm, norm_kernel
from run_iree.kernels._quantize import quantize_kernel, silu_quantize_kernel
from run_iree.kernels._text import CpuKernel
from run_iree.kernels._vector import vector_kernel
from run_iree.kernels._vnni_matmul import matmul_kernel
from run_iree.kernels._vnni_matvec import fits_vnni_matvec, vnni_matvec_kernel
from run_iree.kernels._vnni_panel import ROWS
from run_iree.kernels._wide_matmul import PANEL_ROWS, wide_matmul_kernel
from run_iree.kernels._wide_matvec import STEP, wide_matvec_kernel

# Names of helper functions, as emission writes them.
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


@dataclass(frozen=True, slots=True)
class CpuKernels:
    """Kernels that a CPU gets.

    Attributes:
        vnni: whether it gets those for AVX-512 VNNI.
        bf16: whether it gets those for AVX512_BF16.
        avx512: whether it gets those for AVX-512.
        fma: whether it gets those for AVX2 with FMA and F16C.
        ahead: prefetch distance in bytes of kernels for one token; 0 for none. Those for AVX2 with packed weights
            always prefetch: their arithmetic keeps a core from looking ahead by itself.
    """

    vnni: bool = False
    bf16: bool = False
    avx512: bool = False
    fma: bool = False
    ahead: int = PREFETCH_DISTANCE

    @staticmethod
    def of(features: Iterable[str], model: str = "") -> "CpuKernels":
        """Returns the kernels for a CPU with these features, of this model name, as /proc/cpuinfo spells them."""
        return CpuKernels(**available(features), ahead=prefetch_distance(model))

    def candidates(self) -> Iterator["CpuKernels"]:
        """Yields these kernels, then others that the same CPU can run, for a tuner to time."""
        yield self
        for distance in PREFETCH_CANDIDATES:
            if distance != self.ahead:
                yield replace(self, ahead=distance)
        for name in ("vnni", "bf16"):
            if getattr(self, name):
                yield replace(self, **{name: False})

    def kernel(self, function: str) -> CpuKernel | None:
        """Returns the kernel for a helper function; None where the compiler's code is used."""
        for pattern, build in _FAMILIES:
            match = pattern.fullmatch(function)
            if match is not None:
                return build(self, match)
        return None


def _quantize(kernels: CpuKernels, match: re.Match[str]) -> CpuKernel:
    del kernels
    build = quantize_kernel if match["of"] == "block" else silu_quantize_kernel
    return build(int(match["rows"]), int(match["columns"]), match["dtype"])


def _norm(kernels: CpuKernels, match: re.Match[str]) -> CpuKernel:
    del kernels
    weight = None if match["weight"] == "plain" else match["weight"]
    centred, eps = match["centred"] is not None, _number(match["eps"])
    return norm_kernel(Norm(int(match["rows"]), int(match["columns"]), match["dtype"], weight, centred, eps))


def _attention(kernels: CpuKernels, match: re.Match[str]) -> CpuKernel | None:
    del kernels
    sizes, blocks = AttentionSizes(*map(int, match["sizes"].split("x"))), match["blocks"] is not None
    fits = sizes.fit_blocks() if blocks else sizes.fit()
    return attention_kernel(sizes, match["dtype"], _number(match["scale"]), blocks=blocks) if fits else None


def _wide(kernels: CpuKernels, match: re.Match[str]) -> CpuKernel | None:
    """Returns the kernel of a product with 16-bit weights."""
    (rows, outputs, columns), dtype = _sizes(match), match["dtype"]
    dtypes, pairs = (dtype, match["result"]), kernels.bf16 and dtype == "bf16"
    if columns % STEP or not kernels.fma:
        return None
    if rows == 1:
        return wide_matvec_kernel(outputs, columns, dtypes, pairs=pairs, ahead=kernels.ahead)
    if kernels.avx512 and outputs % PANEL_ROWS == 0:
        return wide_matmul_kernel(rows, outputs, columns, dtype, pairs=pairs)
    return None if outputs % LANES_ROWS else fma_matmul_kernel(rows, outputs, columns, dtypes)


def _packed(kernels: CpuKernels, match: re.Match[str]) -> CpuKernel:
    """Returns the kernel of a product with packed weights."""
    (rows, outputs, columns), encoding = _sizes(match), encoding_named(match["encoding"])
    dtype = match["dtype"] if match["dtype"] in ("bf16", "f16") else "f32"
    if rows == 1:
        return _packed_matvec(kernels, outputs, columns, encoding, dtype)
    if kernels.vnni and outputs % ROWS == 0:
        return matmul_kernel(rows, outputs, columns, encoding)
    if kernels.fma and outputs % LANES_ROWS == 0:
        return avx2_matmul_kernel(rows, outputs, columns, encoding, dtype)
    return vector_kernel(rows, outputs, columns, encoding, dtype)


def _packed_matvec(kernels: CpuKernels, outputs: int, columns: int, encoding: Encoding, dtype: str) -> CpuKernel:
    if kernels.vnni and fits_vnni_matvec(columns, encoding):
        return vnni_matvec_kernel(outputs, columns, encoding, dtype, ahead=kernels.ahead)
    if kernels.fma and fits_avx2_matvec(columns, encoding):
        return avx2_matvec_kernel(outputs, columns, encoding, dtype, ahead=PREFETCH_DISTANCE)
    return vector_kernel(1, outputs, columns, encoding, dtype)


def _sizes(match: re.Match[str]) -> tuple[int, int, int]:
    """Returns rows, outputs and columns of a product."""
    return int(match["rows"]), int(match["outputs"]), int(match["columns"])


def _number(name: str) -> float:
    """Returns the number that emission wrote with ``in_name``."""
    return float.fromhex(name.replace("m", "-"))


_FAMILIES: Final = (
    (_QUANTIZE, _quantize),
    (_NORM, _norm),
    (_ATTENTION, _attention),
    (_WIDE, _wide),
    (_PACKED, _packed),
)
