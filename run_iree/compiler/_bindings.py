"""Checks how many tensors the fused ops of a module take, which devices limit and the compiler does not check."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from lang_core import CompileError
from run_iree.compiler._compile import compiler_path
from run_iree.compiler._substituted import with_kernels
from run_iree.compiler._targets import Target
from run_iree.devices import MOST_BINDINGS, too_many_buffers

_LAYOUT: Final = re.compile(r"#hal\.pipeline\.layout<bindings = \[([^\]]*)\]")
_EXPORT: Final = re.compile(r"hal\.executable\.export public @(\S+)")


def check_bindings(source: Path, target: Target) -> None:
    """Refuses a module that the target's devices cannot load, by running the first half of the compiler.

    Modules that are loaded for verification do not need this check.

    Args:
        source: StableHLO text that compiles for the target.
        target: target that it was compiled for.

    Raises:
        CompileError: a fused op, which is named, takes more tensors than devices pass.
    """
    with with_kernels(source, target) as (text, _):  # some modules do not compile without them
        count, name = _most_bindings(source, text, target)
    cap = min(MOST_BINDINGS[device] for device in target.devices)
    if count > cap:
        raise CompileError(
            f"{str(source)!r} compiles for {target.name}, but no device would load it: "
            f"{too_many_buffers(count, cap)} (it is {name})"
        )


def _most_bindings(source: Path, text: Path, target: Target) -> tuple[int, str]:
    """Returns the largest number of tensors of a fused op in the text that is compiled, and the op's name."""
    flags = (*target.flags, *target.unchecked, "--compile-to=executable-sources")
    command = [compiler_path(), text.name, *flags, "-o", "-"]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=text.parent, text=True) as process,
    ):
        assert process.stdout is not None
        most = max(map(_bindings, process.stdout), default=(0, ""))
        if process.wait() != 0:
            errors.seek(0)
            raise CompileError(f"cannot count the tensors of {source}: {errors.read().decode(errors='replace')[-300:]}")
    return most


def _bindings(line: str) -> tuple[int, str]:
    """Returns the number of tensors and the name of the fused op that a line exports; 0 for other lines."""
    layout, export = _LAYOUT.search(line), _EXPORT.search(line)
    if layout is None or export is None:
        return 0, ""
    return layout[1].count("#hal.pipeline.binding<"), export[1]
