"""Parses and verifies a module's text with IREE's own parser, if StableHLO's tools are not installed."""

import subprocess
from pathlib import Path
from typing import Final

from lang_core import VerificationError
from run_iree.compiler._compile import compiler_path

_TOOL: Final = "iree-opt"


def check_text(path: Path) -> None:
    """Parses and verifies a module's StableHLO, and the ops of IREE in it, in a process of its own.

    Raises:
        VerificationError: the module is not valid.
        MissingPackageError: the IREE compiler is not installed.
    """
    tool = Path(compiler_path()).with_name(_TOOL)
    command = [str(tool), path.name, "-o", "/dev/null"]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        message = done.stderr.strip() or f"{_TOOL} ended with status {done.returncode}"
        raise VerificationError(f"{path}: no valid StableHLO: {message}")
