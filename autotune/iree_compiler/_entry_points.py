"""Entry points as kernels whose configurations are flags of IREE's compiler."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from autotune import Invocation, Kernel
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import EntryPoint, ExecutionContext
from run_iree import DATA_TILING


@dataclass(frozen=True)
class CompileFlags:
    """A configuration that is compiled with flags of its own, after the target's.

    Any configuration with an attribute ``compile_flags`` is.

    Attributes:
        compile_flags: of IREE's compiler.
    """

    compile_flags: tuple[str, ...] = ()


# What is tried beside the target's own flags (run_iree/compiler/_targets.py).
CANDIDATE_FLAGS: Final = (
    (),
    (DATA_TILING,),
    ("--iree-opt-level=O3",),
    ("--iree-opt-level=O3", DATA_TILING),
    ("--iree-llvmcpu-reassociate-fp-reductions=false",),
    ("--iree-dispatch-creation-enable-aggressive-fusion=true",),
    ("--iree-opt-aggressively-propagate-transposes=true",),
    ("--iree-llvmcpu-disable-distribution=true",),  # one thread per dispatch: what is small gains by not waiting
)


class EntryPointKernel(Kernel[CompileFlags, Any]):
    """A model's entry point; ``Executor.compile`` finds the flags with which IREE runs it fastest.

    Its arguments are those of the entry point, scalars as arrays of rank 0. Weights are read from the archive that the
    ``IreeCompiler`` was given. The key has a hash of the lowered module, so another model is another op.

    Args:
        entry_point: what to compile.
        flags: candidates.
    """

    def __init__(self, entry_point: EntryPoint, flags: Sequence[Sequence[str]] = CANDIDATE_FLAGS) -> None:
        super().__init__(f"entry_point.{entry_point.name}")
        self.entry_point: Final = entry_point
        self._flags: Final = tuple(CompileFlags(tuple(each)) for each in flags)
        digest = hashlib.sha256()
        lower_module([entry_point], lambda text: digest.update(text.encode()), ExternalParameters())
        self.version = digest.hexdigest()[:12]

    def run(self, *args: Any, cfg: CompileFlags, ctx: ExecutionContext) -> dict[str, Any]:
        """The entry point's results, by name. Flags do not change what is recorded."""
        return dict(self.entry_point.fn(ctx, *args))

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> CompileFlags:
        """The target's own flags."""
        return CompileFlags()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[CompileFlags]:
        """What there is to try."""
        return list(self._flags)
