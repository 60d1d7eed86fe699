"""Runs a function of ops with a CPU kernel in it, and without, and compares both with the eager context."""

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import (
    Argument,
    CompileError,
    EagerExecutionContext,
    EntryPoint,
    ExecutionContext,
    Tensor,
    TensorSpec,
    VerificationError,
    as_dtype,
)
from run_iree.compiler import CompileReport, compile_module, target_named
from run_iree.devices import host_cpu
from run_iree.kernels import CpuKernels
from run_iree.sessions import Session

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Call = Callable[..., Tensor | Mapping[str, Tensor]]

_DEVICE: Final = "local-sync"
_NAME: Final = "checked"


@dataclasses.dataclass(frozen=True, slots=True)
class KernelCheck:
    """Outcome of a passed check.

    Attributes:
        kernels: name of the kernel by helper function, of those that were used.
        errors: by result, the largest difference to the eager context with kernels, relative to its largest value.
        portable_errors: the same of the compiled StableHLO, without kernels.
    """

    kernels: Mapping[str, str]
    errors: Mapping[str, float]
    portable_errors: Mapping[str, float]


def check_kernel(
    call: Call, *arrays: Array, kernel: str, kernels: CpuKernels | None = None, tolerance: float = 1e-5
) -> KernelCheck:
    """Compiles a function of ops with a CPU kernel in it, and without, and holds both to the eager context.

    Args:
        call: function of a context and tensors that returns a tensor, or tensors by name.
        *arrays: values of the tensors.
        kernel: name of the kernel that has to be used.
        kernels: kernels to choose from; all that this CPU can run if None.
        tolerance: largest difference of a float, relative to the result's largest value; integers are equal.

    Raises:
        CompileError: the CPU lacks what the kernels need, or the compiler refuses the kernel.
        VerificationError: the kernel was not used, or results differ; names the result, and whether the kernel or the
            StableHLO is at fault.
    """
    chosen = CpuKernels.of(host_cpu().features, host_cpu().name) if kernels is None else kernels
    _check_cpu(chosen)
    point = _entry_point(call, arrays)
    ctx = EagerExecutionContext()
    expected = {name: tensor.numpy() for name, tensor in point(ctx, *map(ctx.constant, arrays)).items()}
    with tempfile.TemporaryDirectory(prefix="tapeline-kernel-") as folder:
        module = Path(folder, "module.mlir")
        with module.open("w") as file:
            lower_module([point], file.write, ExternalParameters())
        portable, _ = _run(module, None, arrays, list(expected))
        portable_errors = _compared("the StableHLO", portable, expected, tolerance)
        results, report = _run(module, chosen, arrays, list(expected))
    if kernel not in report.kernels.values():
        used = ", ".join(sorted(set(report.kernels.values()))) or "none"
        raise VerificationError(
            f"kernel {kernel!r} was not used; used: {used}: is it registered for the kind of the helper function, and "
            f"does its builder return it for these sizes and dtypes?"
        )
    return KernelCheck(report.kernels, _compared(f"kernel {kernel!r}", results, expected, tolerance), portable_errors)


def _check_cpu(kernels: CpuKernels) -> None:
    here = CpuKernels.of(host_cpu().features).names()
    lacks = [name for name in kernels.names() if name not in here]
    if lacks:
        raise CompileError(
            f"kernels for {', '.join(lacks)}: this CPU lacks the instructions, and only a CPU that has them can run "
            f"the check; it has: {', '.join(here) or 'none of the sets'}"
        )


def _entry_point(call: Call, arrays: Sequence[Array]) -> EntryPoint:
    def named(ctx: ExecutionContext, *tensors: Tensor) -> Mapping[str, Tensor]:
        made = call(ctx, *tensors)
        return made if isinstance(made, Mapping) else {"result": made}

    arguments = [Argument(f"x{i}", TensorSpec(array.shape, as_dtype(array.dtype))) for i, array in enumerate(arrays)]
    return EntryPoint(_NAME, named, tuple(arguments))


def _run(
    module: Path, kernels: CpuKernels | None, arrays: Sequence[Array], names: Sequence[str]
) -> tuple[Arrays, CompileReport]:
    compiled = module.with_suffix(".vmfb")
    report = compile_module(module, compiled, dataclasses.replace(target_named("llvm-cpu"), kernels=kernels))
    with Session(compiled, _DEVICE) as session:
        tensors = session.function(_NAME)(*arrays)
        return {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}, report


def _compared(what: str, results: Arrays, expected: Arrays, tolerance: float) -> dict[str, float]:
    return {name: _error(what, name, results[name], wanted, tolerance) for name, wanted in expected.items()}


def _error(what: str, name: str, result: Array, wanted: Array, tolerance: float) -> float:
    """Returns the largest difference relative to the largest value.

    Raises:
        VerificationError: it is larger than the tolerance, or other elements are not finite.
    """
    limit = tolerance if as_dtype(wanted.dtype).is_floating else 0.0
    a, b = result.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    same = np.array_equal(a[~finite], b[~finite], equal_nan=True) and bool(np.isfinite(a[finite]).all())
    apart = np.where(finite & np.isfinite(a), np.abs(a - np.where(finite, b, 0)), 0.0 if same else np.inf)
    largest = np.abs(b[finite]).max(initial=0.0) or 1.0
    error = float(apart.max(initial=0.0) / largest)
    if error > limit:
        place = tuple(int(i) for i in np.unravel_index(int(apart.argmax()), apart.shape))
        raise VerificationError(
            f"{what} departs from the eager context: {name}{list(place)} is {a[place]:.9g}, expected {b[place]:.9g}; "
            f"the largest difference is {error:.3g} of the largest value, the tolerance {limit:.3g}"
        )
    return error
