"""Entry points as kernels, with flags of IREE's compiler as configurations."""

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
    """Configuration with flags of IREE's compiler.

    They follow the target's flags. Any configuration with an attribute ``compile_flags`` is compiled in this way.

    Attributes:
        compile_flags: flags of IREE's compiler.
    """

    compile_flags: tuple[str, ...] = ()


CANDIDATE_FLAGS: Final = (
    (),
    (DATA_TILING,),
    ("--iree-opt-level=O3",),
    ("--iree-opt-level=O3", DATA_TILING),
    ("--iree-llvmcpu-reassociate-fp-reductions=false",),
    ("--iree-dispatch-creation-enable-aggressive-fusion=true",),
    ("--iree-opt-aggressively-propagate-transposes=true",),
    ("--iree-llvmcpu-disable-distribution=true",),  # one thread per dispatch: none waits for others
)
"""Sets of flags to try in addition to the target's own."""


class EntryPointKernel(Kernel[CompileFlags, Any]):
    """Entry point of a model as a kernel; ``Executor.compile`` finds the flags with which IREE runs it fastest.

    Its arguments are those of the entry point, scalars as arrays of rank 0. Weights are read from the archive of the
    ``IreeCompiler``. The key has a hash of the lowered module, so that another model is another op.

    Args:
        entry_point: entry point to compile.
        flags: sets of flags to try.
    """

    def __init__(self, entry_point: EntryPoint, flags: Sequence[Sequence[str]] = CANDIDATE_FLAGS) -> None:
        super().__init__(f"entry_point.{entry_point.name}")
        self.entry_point: Final = entry_point
        self._flags: Final = tuple(CompileFlags(tuple(candidate)) for candidate in flags)
        digest = hashlib.sha256()
        lower_module([entry_point], lambda text: digest.update(text.encode()), ExternalParameters())
        self.version = digest.hexdigest()[:12]

    def run(self, *args: Any, cfg: CompileFlags, ctx: ExecutionContext) -> dict[str, Any]:
        """Returns the entry point's results by name. Flags do not change the recording."""
        return dict(self.entry_point.fn(ctx, *args))

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> CompileFlags:
        """Returns the target's own flags."""
        return CompileFlags()

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[CompileFlags]:
        """Returns all sets of flags to try."""
        return list(self._flags)
