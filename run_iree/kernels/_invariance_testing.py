"""Products and other functions of tokens, held to the bits that each token has alone."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import (
    ENCODINGS,
    Activations,
    Argument,
    EagerExecutionContext,
    EntryPoint,
    ExecutionContext,
    Tensor,
    TensorSpec,
    as_dtype,
)
from run_iree import Session, host_cpu
from run_iree.kernels import CpuKernels
from run_iree.kernels._spelled_testing import compile_spelled

_Array = np.ndarray[Any, Any]
HERE = CpuKernels.of(host_cpu().features)
SETS = {
    "vnni": CpuKernels(vnni=True, bf16=True, avx512=True, fma=True),
    "avx512": CpuKernels(avx512=True, fma=True),
    "fma": CpuKernels(fma=True),
}
LONG = bool(os.environ.get("TAPELINE_LONG"))
NO_AVX2 = pytest.mark.skipif(not HERE.fma, reason="this CPU has no AVX2")


@dataclass(frozen=True)
class TokenCase:
    """Function of tokens, [B, T, ..] each, and of parameters.

    Attributes:
        fn: the function.
        tokens: arrays with the numbers of all tokens, by the first axis.
        parameters: other operands.
    """

    fn: Callable[..., Tensor]
    tokens: Sequence[_Array]
    parameters: Sequence[_Array] = ()


def _entry_point(name: str, case: TokenCase, shape: tuple[int, int]) -> EntryPoint:
    def fn(ctx: ExecutionContext, *given: Tensor) -> dict[str, Tensor]:
        return {"y": case.fn(ctx, *given)}

    tokens = [TensorSpec((*shape, *array.shape[1:]), as_dtype(array.dtype)) for array in case.tokens]
    others = [TensorSpec(array.shape, as_dtype(array.dtype)) for array in case.parameters]
    arguments = tuple(Argument(f"x{i}", spec) for i, spec in enumerate([*tokens, *others]))
    return EntryPoint(name, fn, arguments, batch_invariant=True)


def _shapes(count: int) -> list[tuple[int, int]]:
    """Returns how so many tokens stand in a batch: one sequence, as in a prefill, or each its own, as in a decode."""
    return {1: [(1, 1)], 2: [(2, 1), (1, 2)], 9: [(9, 1)], 32: [(32, 1), (1, 32)]}.get(count, [(1, count)])


def check_tokens(
    cases: Mapping[str, TokenCase], kernels: CpuKernels, folder: Path, counts: Sequence[int], near: float = 0
) -> dict[str, str]:
    """Compares each token's results among others with those alone, and with the eager op; returns the kernels."""
    module, compiled = folder / "module.mlir", folder / "module.vmfb"
    points = {
        f"{name}_{batch}_{tokens}": _entry_point(f"{name}_{batch}_{tokens}", case, (batch, tokens))
        for name, case in cases.items()
        for count in counts
        for batch, tokens in _shapes(count)
    }
    with module.open("w") as file:
        lower_module(list(points.values()), file.write, ExternalParameters())
    report = compile_spelled(module, compiled, kernels)
    with Session(compiled, "local-task") as session:

        def run(name: str, case: TokenCase, shape: tuple[int, int], chosen: _Array) -> _Array:
            given = [array[chosen].reshape(*shape, *array.shape[1:]) for array in case.tokens]
            (y,) = session.function(f"{name}_{shape[0]}_{shape[1]}")(*given, *case.parameters)
            return y.numpy().reshape(len(chosen), -1).copy()

        for name, case in cases.items():
            numbers = np.arange(max(counts))
            alone = np.concatenate([run(name, case, (1, 1), numbers[i : i + 1]) for i in numbers])
            if near:
                wanted = case.fn(ctx := EagerExecutionContext(), *map(ctx.constant, [*case.tokens, *case.parameters]))
                np.testing.assert_allclose(alone, wanted.numpy().reshape(alone.shape), rtol=0, atol=near)
            for count in counts[1:]:
                for shape in _shapes(count):
                    for chosen in (numbers[:count], numbers[::-1][:count]):
                        made = run(name, case, shape, chosen)
                        assert made.tobytes() == alone[chosen].tobytes(), f"{name} {shape} from {chosen[0]} on"
    return dict(report.kernels)


def drawn(*shape: int, dtype: str = "f32") -> _Array:
    return np.random.default_rng(shape[-1]).standard_normal(shape).astype(as_dtype(dtype).numpy)


def _bytes_of(encoding: str, outputs: int, columns: int) -> _Array:
    """Returns a weight of drawn bytes whose scales are of a size."""
    layout, kind = ENCODINGS[encoding].layout, ENCODINGS[encoding]
    rng = np.random.default_rng(columns)
    w = rng.integers(-128, 128, (outputs, columns // kind.block, kind.block_bytes)).astype(np.int8)
    for place in layout.halves:
        w[..., place : place + 2] = (rng.standard_normal((*w.shape[:2], 1)) / 256).astype(np.float16).view(np.int8)
    if layout.exponent:
        w[..., layout.scale] = rng.integers(120, 128, w.shape[:2])
    return w.reshape(outputs, -1)


def packed_product(encoding: str, columns: int, activations: Activations, tokens: int, outputs: int = 37) -> TokenCase:
    def fn(ctx: ExecutionContext, x: Tensor, w: Tensor) -> Tensor:
        return ctx.ops.packed_linear(x, w, ENCODINGS[encoding], activations=activations)

    return TokenCase(fn, [drawn(tokens, columns)], [_bytes_of(encoding, outputs, columns)])


FORMS: tuple[Activations, ...] = ("exact", "q8")
