"""Kernels by record of a helper function, for the instruction sets of a CPU."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from compile_hlo.directions import KernelSignature
from lang_core import Encoding, bf16, checked_choices, encoding_named, f16
from run_iree.kernels._attention import attention_kernel
from run_iree.kernels._attention_keys import MOST_TOGETHER
from run_iree.kernels._attention_sizes import AttentionSizes
from run_iree.kernels._avx2_matvec import (
    avx2_matvec_kernel,
    avx2_tokens_kernel,
    exact_accumulators,
    fits_avx2_matvec,
)
from run_iree.kernels._avx512_matvec import avx512_matvec_kernel, avx512_tokens_kernel, fits_avx512_matvec
from run_iree.kernels._cache_blocks import cache_blocks_kernel
from run_iree.kernels._floats_matmul import floats_matmul_kernel, linear_matmul_kernel
from run_iree.kernels._instruction_sets import (
    INSTRUCTION_SETS,
    PREFETCH_CANDIDATES,
    PREFETCH_DISTANCE,
    available,
    prefetch_distance,
)
from run_iree.kernels._integers_matmul import integers_matmul_kernel
from run_iree.kernels._lanes_matmul import ROWS as LANES_ROWS
from run_iree.kernels._norm import Norm, norm_kernel
from run_iree.kernels._packed_experts import expert_kernel, product_of_one_expert
from run_iree.kernels._packed_parts import part_blocks
from run_iree.kernels._quantize import Blocks, quantize_kernel, silu_quantize_kernel
from run_iree.kernels._registered import registered_kernels
from run_iree.kernels._row_lanes import MOST_TOKENS, fits_row_lanes, row_lanes_kernel
from run_iree.kernels._text import CpuKernel
from run_iree.kernels._vector import vector_kernel
from run_iree.kernels._wide_matvec import STEP, wide_matvec_kernel
from run_iree.kernels._wide_tokens import wide_tokens_kernel

# Tokens for which the kernels with the sums of those for one are the faster ones; with AVX-512, and without.
FEW_TOKENS: Final = 8
_FEW_PACKED_AVX2: Final = 4
_FEW_EXACT: Final = 6  # if blocks are summed exactly
_LEAST_BLOCKS: Final = 3  # of a part of W: with fewer, products of several tokens take longer
_OURS: Final = tuple(instructions.name for instructions in INSTRUCTION_SETS)


@checked_choices
@dataclass(frozen=True, slots=True)
class CpuKernels:
    """Kernels that a CPU gets.

    Attributes:
        vnni: whether it gets those for AVX-512 VNNI.
        bf16: whether it gets those for AVX512_BF16.
        avx512: whether it gets those for AVX-512.
        fma: whether it gets those for AVX2 with FMA and F16C.
        ahead: prefetch distance in bytes of kernels for one token; 0 for none. Those with packed weights always
            prefetch: their arithmetic keeps a core from looking ahead by itself.
        registered: names of other packages' instruction sets that it uses kernels of.
    """

    vnni: bool = False
    bf16: bool = False
    avx512: bool = False
    fma: bool = False
    ahead: int = PREFETCH_DISTANCE
    registered: tuple[str, ...] = ()

    @staticmethod
    def of(features: Iterable[str], model: str = "") -> "CpuKernels":
        """Returns the kernels for a CPU with these features, of this model name, as /proc/cpuinfo spells them."""
        names = [name for name, has in available(features).items() if has]
        ours = {name: True for name in names if name in _OURS}
        others = tuple(name for name in names if name not in _OURS)
        return CpuKernels(**ours, ahead=prefetch_distance(model), registered=others)

    def names(self) -> tuple[str, ...]:
        """Returns the names of the instruction sets that the CPU's kernels use."""
        return (*(name for name in _OURS if getattr(self, name)), *self.registered)

    def candidates(self) -> Iterator["CpuKernels"]:
        """Yields these kernels, then others that the same CPU can run, for a tuner to time."""
        yield self
        for distance in PREFETCH_CANDIDATES:
            if distance != self.ahead:
                yield replace(self, ahead=distance)
        for name in ("vnni", "bf16"):
            if getattr(self, name):
                yield replace(self, **{name: False})
        for name in self.registered:
            yield replace(self, registered=tuple(other for other in self.registered if other != name))

    def kernel(self, function: KernelSignature) -> CpuKernel | None:
        """Returns the kernel for a helper function; None if the compiler's code is used."""
        names = (None, *self.names())
        for registered in registered_kernels(function.kind):
            kernel = registered.build(function) if registered.instruction_set in names else None
            if kernel is not None:
                return kernel
        build = _FAMILIES.get(function.kind)
        return None if build is None else build(self, function)


def _shapes(function: KernelSignature) -> list[tuple[int, ...]]:
    return [argument.spec.shape for argument in function.arguments]


def _dtypes(function: KernelSignature) -> list[str]:
    return [argument.spec.dtype.name for argument in function.arguments]


def _made_blocks(function: KernelSignature) -> Blocks:
    """Returns the sizes of a quantized result."""
    rows, planes, columns = function.results[0].spec.shape
    return Blocks(rows, columns, planes)


def _block_quantize(kernels: CpuKernels, function: KernelSignature) -> CpuKernel:
    del kernels
    return quantize_kernel(_made_blocks(function), _dtypes(function)[0])


def _silu_quantize(kernels: CpuKernels, function: KernelSignature) -> CpuKernel:
    del kernels
    return silu_quantize_kernel(_made_blocks(function), _dtypes(function)[0])


def _norm(kernels: CpuKernels, function: KernelSignature) -> CpuKernel:
    del kernels
    rows, columns = _shapes(function)[0]
    dtype, *weights = _dtypes(function)
    weight, centred = weights[0] if weights else None, bool(function.attributes["centred"])
    eps, planes = float(function.attributes["eps"]), _made_blocks(function).planes
    return norm_kernel(Norm(rows, columns, dtype, weight, centred, eps, planes))


def _attention(kernels: CpuKernels, function: KernelSignature) -> CpuKernel | None:
    q, _, _, bias, *rows = _shapes(function)
    encoding = function.attributes.get("encoding")
    packed = None if encoding is None else encoding_named(str(encoding))
    stored = function.arguments[2].spec.shape
    width = stored[3] if packed is None else packed.columns(stored[3])
    together = MOST_TOGETHER if kernels.avx512 else 1  # others have too few registers for several rows
    pages = math.prod(rows[0][1:]) if rows else 1
    numbers = [*q, bias[2], width or 0, bias[0], stored[0] if rows else 0, pages]
    sizes = AttentionSizes(*numbers, most_together=together, encoding=packed)
    blocks = function.kind.endswith("_quantize")
    if not (sizes.fit_blocks() if blocks else sizes.fit()):
        return None
    planes = _made_blocks(function).planes if blocks else 0
    return attention_kernel(sizes, _dtypes(function)[0], float(function.attributes["scale"]), planes=planes)


def _cache_blocks(kernels: CpuKernels, function: KernelSignature) -> CpuKernel:
    del kernels
    (rows, columns), encoding = _shapes(function)[0], encoding_named(str(function.attributes["encoding"]))
    return cache_blocks_kernel(rows, columns, encoding, _dtypes(function)[0])


def _wide(kernels: CpuKernels, function: KernelSignature) -> CpuKernel | None:
    """Returns the kernel of a product with weights of 16 bits, or of f32."""
    (rows, columns), (outputs, _) = _shapes(function)
    dtype = _dtypes(function)[0]
    dtypes, pairs = (dtype, function.results[0].spec.dtype.name), kernels.bf16 and dtype == "bf16"
    if columns % STEP or not kernels.fma:
        return None
    if rows == 1:
        return wide_matvec_kernel(outputs, columns, dtypes, pairs=pairs, ahead=kernels.ahead)
    if rows <= FEW_TOKENS or function.attributes.get("batch_invariant"):
        ahead, apart = kernels.ahead or PREFETCH_DISTANCE, rows > FEW_TOKENS and not kernels.avx512
        return wide_tokens_kernel(
            (rows, outputs, columns),
            dtypes,
            pairs=pairs,
            ahead=ahead,
            tile=4 if kernels.avx512 or apart else 2,
            parts_apart=apart,
        )
    if outputs % LANES_ROWS:
        return None
    return linear_matmul_kernel((rows, outputs, columns), dtypes, lanes=16 if kernels.avx512 else 8, pairs=pairs)


def _packed_linear(kernels: CpuKernels, function: KernelSignature) -> CpuKernel:
    """Returns the kernel of a product with packed weights."""
    sizes, encoding, dtype, planes = _packed_sizes(function)
    (rows, outputs, columns), invariant = sizes, function.attributes.get("batch_invariant")
    vnni, wide = kernels.vnni, kernels.vnni or kernels.avx512
    if not (invariant and wide and fits_row_lanes(outputs, columns, encoding, vnni=vnni)):
        exact = _exact_blocks(sizes, encoding, dtype, planes) if invariant and kernels.fma and not wide else None
        return exact or _packed(kernels, function)
    if vnni and rows > MOST_TOKENS[planes]:
        return integers_matmul_kernel(sizes, encoding, dtype, planes=planes, vnni=True)
    return row_lanes_kernel(sizes, encoding, dtype, planes=planes, vnni=vnni)


def _exact_blocks(sizes: tuple[int, int, int], encoding: Encoding, dtype: str, planes: int) -> CpuKernel | None:
    """Returns the kernel with AVX2 that sums each block exactly, so that prompts' kernels have a token's bits."""
    rows, outputs, columns = sizes
    accumulators = exact_accumulators(columns, encoding, planes)
    if not accumulators or outputs % LANES_ROWS or part_blocks(columns, "i16", accumulators) < _LEAST_BLOCKS:
        return None
    if rows == 1:
        return avx2_matvec_kernel(outputs, columns, encoding, dtype, planes, ahead=PREFETCH_DISTANCE, exact_blocks=True)
    if rows <= _FEW_EXACT:
        return avx2_tokens_kernel(sizes, encoding, dtype, planes, ahead=PREFETCH_DISTANCE, exact_blocks=True)
    return integers_matmul_kernel(sizes, encoding, dtype, planes=planes, vnni=False, accumulators=accumulators)


def _packed_sizes(function: KernelSignature) -> tuple[tuple[int, int, int], Encoding, str, int]:
    """Returns of a product with packed weights T, N and K, the encoding, the result's dtype and planes of x."""
    (rows, planes, columns), *_, (outputs, _) = _shapes(function)
    encoding, result = encoding_named(str(function.attributes["encoding"])), function.results[0].spec.dtype
    return (rows, outputs, columns), encoding, result.name if result in (bf16, f16) else "f32", planes


def _packed(kernels: CpuKernels, function: KernelSignature) -> CpuKernel:
    """Returns the kernel of a product with packed weights that has the sums of the one for one token, or any."""
    sizes, encoding, dtype, planes = _packed_sizes(function)
    rows, outputs, columns = sizes
    if rows == 1:
        return _packed_matvec(kernels, outputs, columns, encoding, dtype, planes)
    tokens = _packed_tokens(kernels, sizes, encoding, dtype, planes)
    few = FEW_TOKENS if kernels.avx512 or kernels.vnni else _FEW_PACKED_AVX2
    invariant = function.attributes.get("batch_invariant")
    if tokens is not None and (rows <= few or invariant):
        return tokens
    if outputs % LANES_ROWS or invariant or not (kernels.vnni or kernels.fma):  # one token has this kernel too
        return vector_kernel(rows, outputs, columns, encoding, dtype, planes)
    if kernels.avx512 and not kernels.vnni:
        return floats_matmul_kernel(sizes, encoding, dtype, planes=planes, lanes=16)
    return integers_matmul_kernel(sizes, encoding, dtype, planes=planes, vnni=kernels.vnni)


def _packed_matvec(
    kernels: CpuKernels, outputs: int, columns: int, encoding: Encoding, dtype: str, planes: int
) -> CpuKernel:
    if (kernels.avx512 or kernels.vnni) and fits_avx512_matvec(columns, encoding):
        ahead = kernels.ahead or PREFETCH_DISTANCE
        return avx512_matvec_kernel(outputs, columns, encoding, dtype, planes, ahead=ahead)
    if kernels.fma and fits_avx2_matvec(columns, encoding):
        return avx2_matvec_kernel(outputs, columns, encoding, dtype, planes, ahead=PREFETCH_DISTANCE)
    return vector_kernel(1, outputs, columns, encoding, dtype, planes)


def _packed_tokens(
    kernels: CpuKernels, sizes: tuple[int, int, int], encoding: Encoding, dtype: str, planes: int
) -> CpuKernel | None:
    """Returns the kernel for several tokens with the same bits as the kernel for one; None without one."""
    columns = sizes[-1]
    if (kernels.avx512 or kernels.vnni) and fits_avx512_matvec(columns, encoding):
        ahead = kernels.ahead or PREFETCH_DISTANCE
        return avx512_tokens_kernel(sizes, encoding, dtype, planes, ahead=ahead)
    if kernels.fma and fits_avx2_matvec(columns, encoding):
        return avx2_tokens_kernel(sizes, encoding, dtype, planes, ahead=PREFETCH_DISTANCE)
    return None


def _packed_experts(kernels: CpuKernels, function: KernelSignature) -> CpuKernel:
    """Returns the kernel of a product with packed weights of stacked experts: that of one, for each group of rows."""
    one = product_of_one_expert(function)
    kernel = _packed(kernels, one)
    if kernel.arrangement is not None and function.arguments[0].spec.shape[0] > 1:
        kernel = _packed(CpuKernels(), one)  # what is arranged would be each group's own
    return expert_kernel(kernel, function)


_FAMILIES: Final[Mapping[str, Callable[[CpuKernels, KernelSignature], CpuKernel | None]]] = MappingProxyType(
    {
        "block_quantize": _block_quantize,
        "silu_quantize": _silu_quantize,
        "rms_norm_quantize": _norm,
        "cached_attention": _attention,
        "cached_attention_quantize": _attention,
        "packed_cached_attention": _attention,
        "packed_cached_attention_quantize": _attention,
        "quantize": _cache_blocks,
        "expert_block_product": _packed_experts,
        "linear": _wide,
        "packed_linear": _packed_linear,
    }
)
