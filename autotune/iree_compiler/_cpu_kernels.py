"""CPU kernels as a configuration: which a CPU gets, how far they prefetch. Measured once for a CPU, and remembered."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from autotune import (
    ArraySpec,
    ConfigSelectorChain,
    Invocation,
    Kernel,
    KernelError,
    PersistentCache,
    Selection,
    TuningError,
)
from autotune.compilers import compile_invocation
from autotune.iree_compiler._iree import IreeCompiler, table_spec
from autotune.selection import policy_override
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, ExecutionContext, Tensor, TensorSpec, encoding_named
from run_iree import target_named
from run_iree.kernels import CpuKernels, Substitution

Arrays = tuple[np.ndarray[Any, Any], ...]

_TARGET: Final = "llvm-cpu"
# Columns of all weights, and their rows: one token reads more than a core's caches hold, several tokens share few rows.
_COLUMNS: Final = 2048
_ROWS: Final = 16384
_SHARED_ROWS: Final = 1024
_TOKENS: Final = 32
_ENCODINGS: Final = ("q4_0", "q8_0")
# Rows that differ; the others repeat them, because packing is slow and the time does not depend on the values.
_DISTINCT: Final = 64


class CpuKernelsKernel(Kernel[CpuKernels, tuple[Any, ...]]):
    """Products of a decoder, for one token and several; the configuration selects the CPU's kernels.

    The weights are packed as Q4_0 and Q8_0, and bf16. The version is a hash of the module with the kernels of the
    table in it, so that other kernels are another op.

    Args:
        rows: rows of the weights that one token is multiplied with.
    """

    op_id = "cpu_kernels"

    def __init__(self, rows: int = _ROWS) -> None:
        super().__init__()
        self.rows: Final = rows
        self.version = self._digest()

    def run(self, token: Any, tokens: Any, *weights: Any, cfg: CpuKernels, ctx: ExecutionContext) -> tuple[Any, ...]:
        """Returns the products, bf16 [1, N] for each weight, then [T, N] for each; they do not depend on kernels."""
        half = len(weights) // 2
        return tuple(
            product
            for x, part in ((token, weights[:half]), (tokens, weights[half:]))
            for product in self._products(ctx, x, part)
        )

    def _products(self, ctx: ExecutionContext, x: Any, weights: Sequence[Any]) -> list[Any]:
        *packed, wide = weights
        pairs = zip(packed, _ENCODINGS, strict=True)
        return [*(ctx.ops.packed_linear(x, w, encoding_named(name)) for w, name in pairs), ctx.ops.linear(x, wide)]

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> CpuKernels:
        """Returns the kernels of the table."""
        return table_kernels()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[CpuKernels]:
        """Returns all kernels that this CPU can run."""
        return list(table_kernels().candidates())

    def specs(self) -> tuple[ArraySpec, ...]:
        """Returns the specs of the arguments: one token, several tokens, weights for one, weights for several."""
        tokens = ArraySpec((1, _COLUMNS), "bfloat16"), ArraySpec((_TOKENS, _COLUMNS), "bfloat16")
        return *tokens, *self._weights(self.rows), *self._weights(min(_SHARED_ROWS, self.rows))

    def _weights(self, rows: int) -> list[ArraySpec]:
        wide = TensorSpec((rows, _COLUMNS), "f32")
        packed = (encoding_named(name).packed(wide) for name in _ENCODINGS)
        return [*(ArraySpec(spec.shape, "int8") for spec in packed), ArraySpec(wide.shape, "bfloat16")]

    def arrays(self) -> Arrays:
        """Returns arguments to time: normally distributed, packed if they are packed."""
        args, _ = self.example_args(self.specs(), {})
        weight = np.random.default_rng(1).standard_normal((_DISTINCT, _COLUMNS)).astype(np.float32)
        packed = [encoding_named(name).pack(weight) for name in _ENCODINGS]
        by_width = {rows.shape[1]: rows for rows in packed}
        return tuple(
            np.resize(by_width[array.shape[1]], array.shape) if array.dtype == np.int8 else array for array in args
        )

    def _digest(self) -> str:
        def fn(ctx: ExecutionContext, *tensors: Tensor) -> dict[str, Tensor]:
            products = self.run(*tensors, cfg=CpuKernels(), ctx=ctx)
            return {f"y{number}": product for number, product in enumerate(products)}

        arguments = tuple(Argument(f"x{i}", table_spec(spec)) for i, spec in enumerate(self.specs()))
        text: list[str] = []
        lower_module([EntryPoint("main", fn, arguments)], text.append, ExternalParameters())
        digest = hashlib.sha256()
        for line in Substitution(table_kernels()).lines("".join(text).splitlines(keepends=True)):
            digest.update(line.encode())
        return digest.hexdigest()[:12]


def table_kernels() -> CpuKernels:
    """Returns the kernels that the table has for this machine's CPU."""
    kernels = target_named(_TARGET).kernels
    return CpuKernels() if kernels is None else kernels


def remembered_kernels(cache: PersistentCache[Any] | None = None) -> Selection[CpuKernels]:
    """Returns the kernels for this machine's CPU: tuned or pinned ones, else the table's. Nothing is measured.

    Args:
        cache: cache of configurations; the user's own if None.

    Raises:
        KernelError: the pinned kernels need instructions that this CPU lacks.
    """
    chain = ConfigSelectorChain[CpuKernels, Any](
        policy="heuristics", persistent=PersistentCache() if cache is None else cache
    )
    kernel, table = CpuKernelsKernel(), table_kernels().names()
    selection = chain.select(compile_invocation(IreeCompiler(), kernel, kernel.specs(), {}), kernel)
    lacks = [name for name in selection.cfg.names() if name not in table]
    if lacks:
        raise KernelError(
            f"the {selection.provenance} CPU kernels need {', '.join(lacks)}, which this CPU lacks: pin others, or "
            f"clear {kernel.op_id}"
        )
    return selection


def tune_kernels(chain: ConfigSelectorChain[Any, Any], kernel: CpuKernelsKernel | None = None) -> Selection[CpuKernels]:
    """Times all kernels that this machine's CPU can run, and stores the best in the chain's caches.

    Args:
        chain: chain with the tuner and the caches.
        kernel: products to time; those of ``remembered_kernels`` if None.

    Raises:
        TuningError: the CPU has none of the instruction sets that kernels are written for.
    """
    if not table_kernels().names():
        raise TuningError("this CPU has no kernels to choose between: they need AVX2, FMA and F16C")
    products = CpuKernelsKernel() if kernel is None else kernel
    inv = compile_invocation(IreeCompiler(), products, products.arrays(), {})
    with policy_override(chain, "autotune", tune_again=True, allow_heuristics=False):
        return chain.select(inv, products)
