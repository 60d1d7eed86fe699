"""The compile step of an export."""

import dataclasses
import errno
import shutil
from pathlib import Path
from typing import Any, Final

from autotune import cpu_model
from autotune.iree_compiler import CANDIDATE_FLAGS
from lang_core import CompileError
from run_iree import Session, Target, available, check_bindings, compile_module, tiling_flags
from tapeline.bundle import (
    ARCHIVE,
    DEBUG_MODULE,
    MODULE,
    Steps,
    debug_executable_name,
    executable_name,
    module_cache,
    note_compiled_here,
)
from tapeline.cli import ProgressEvent
from tapeline.exporting._load import Export
from tapeline.exporting._producer import producer
from tapeline.exporting._tune import tune_flags
from tapeline.exporting._verify import devices_of
from tapeline.tuning import tuned_target

_ROOM_FOR_MODULE: Final = 2**20


def compile_targets(export: Export, staging: Path, steps: Steps) -> None:
    """Compiles the modules in ``staging`` for each target of the export, and describes them in ``export.targets``.

    Raises:
        CompileError: a target's compiler refuses a module, or its devices do not load the result.
    """
    compilation = _Compilation(export, staging, steps)
    for name in export.options.compiled:
        compilation.compile(name)


class _Compilation:
    """Compilation of an export's modules."""

    def __init__(self, export: Export, staging: Path, steps: Steps) -> None:
        self._export = export
        self._staging = staging
        self._steps = steps
        self._cache = module_cache(lambda text: export.progress(ProgressEvent(f"warning: {text}")))

    def compile(self, name: str) -> None:
        """Compiles the module, and the debug module if there is one, for a target."""
        self._export.targets[name] = self._compiled(f"compile.{name}", name, MODULE, executable_name(name))
        if self._export.debug is not None:
            self._compiled(f"compile.debug.{name}", name, DEBUG_MODULE, debug_executable_name(name))

    def _tuned(self, name: str) -> dict[str, Any]:
        """The flags that are best here, beside the target's, and all candidates; empty without tuning."""
        if not self._export.options.tune:
            return {}
        key = {
            "module": self._steps.sha256[MODULE],
            "candidates": CANDIDATE_FLAGS,
            "producer": producer(),
            "cpu": cpu_model(),
        }

        def make() -> dict[str, Any]:
            archive = self._staging / ARCHIVE
            export = self._export
            module, weights = self._staging / MODULE, archive if archive.exists() else None
            return tune_flags(
                module,
                weights,
                name,
                export.entry_points,
                export.lowered,
                export.vocabulary,
                self._cache,
                export.progress,
            )

        return self._steps.run(f"tune.{name}", key, [], make)

    def _compiled(self, step: str, name: str, module: str, file: str) -> dict[str, Any]:
        target, cpu_kernels = tuned_target(name)
        tuned = self._tuned(name)
        more = tuple(tuned["flags"]) if tuned else tiling_flags(self._staging / module, target)
        flags = [*target.flags, *more]
        given = target.tiles_beside(flags)
        tiles = dataclasses.asdict(given) if given else None
        kernels = dataclasses.asdict(target.kernels) if target.kernels else None
        key = {"module": self._steps.sha256[module], "flags": flags, "matvec_tiles": tiles, "kernels": kernels}
        key |= {"producer": producer(), "says": "schedule"}  # what an earlier version compiled says none

        def make() -> dict[str, Any]:
            self._export.progress(ProgressEvent(f"compiling {module} for {name}{_origin(cpu_kernels)} ..."))
            try:
                source, output = self._staging / module, self._staging / file
                report = compile_module(source, output, target, extra_flags=more, cache=self._cache)
            except CompileError as error:
                if shutil.disk_usage(self._staging).free < _ROOM_FOR_MODULE:  # the compiler does not say so clearly
                    raise OSError(errno.ENOSPC, str(error), str(self._staging / file)) from error
                raise
            if report.cached:
                self._export.progress(ProgressEvent(f"compile: cached ({module} for {name})"))
            note_compiled_here(output)
            self._check_loads(self._staging / module, self._staging / file, target)
            return {
                "file": file,
                "flags": flags,
                "matvec_tiles": tiles,
                "kernels": dict(report.kernels),
                "cpu_kernels": cpu_kernels,
                "devices": list(target.devices),
                "cpu": dataclasses.asdict(target.cpu) if target.cpu else None,
                "schedule": {entry: dataclasses.asdict(schedule) for entry, schedule in report.schedules.items()},
                "compile": "cached" if report.cached else "compiled",
                "seconds": report.seconds,
                "compiler_peak_rss_bytes": report.peak_rss_bytes,
                **({"tuning": tuned["candidates"]} if tuned else {}),
            }

        return self._steps.run(step, key, [file], make)

    def _check_loads(self, module: Path, file: Path, target: Target) -> None:
        """Refuses modules that the target's devices cannot load, at export instead of at run time."""
        (device,) = devices_of([target.name])
        weights = self._staging / ARCHIVE
        if available(device)[0] and (weights.exists() or self._export.options.weights == "inline"):
            Session(file, device, parameters=weights if weights.exists() else None).close()
        else:
            check_bindings(module, target)


def _origin(cpu_kernels: dict[str, Any] | None) -> str:
    """Returns the source of the CPU kernels, as a part of a sentence; empty for the table."""
    if cpu_kernels is None or cpu_kernels["from"] == "table":
        return ""
    return f", with {cpu_kernels['from']} CPU kernels"
