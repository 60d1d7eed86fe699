"""StableHLO's tools, each call in a child process: jaxlib's memory is not ours, and if it dies we live."""

import importlib
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import VerificationError

# Imported by the child alone.
_TOOLS: Final = "compile_hlo.portable._stablehlo"

# Artifacts of this StableHLO version are read by every consumer that is younger.
ARTIFACT_VERSION: Final = "1.0.0"


def verify_text(path: Path) -> None:
    """Parses and verifies a module; ops of other dialects must be in the generic form.

    Raises:
        VerificationError: it is not valid.
    """
    _in_child("verify_text", path)


def write_artifact(text: Path, artifact: Path, version: str = ARTIFACT_VERSION) -> None:
    """Serialises pure StableHLO text as a portable artifact (VHLO bytecode).

    Raises:
        VerificationError: the text is no valid StableHLO, or has what ``version`` lacks.
    """
    _in_child("write_artifact", text, artifact, version)


def interpret(text: Path, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Runs the only public function of pure StableHLO text in the reference interpreter: slow, and the truth.

    Args:
        text: the module.
        arrays: one per argument.

    Returns:
        One array per result.

    Raises:
        VerificationError: the text is not valid, or the interpreter refuses it.
    """
    return _in_child("interpret", text, list(arrays))


def _in_child(name: str, *args: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(_call, _TOOLS, name, args).result()
        except BrokenProcessPool:
            raise VerificationError(f"{name}: the process that ran it died; what it said stands above") from None


def _call(tools: str, name: str, args: tuple[Any, ...]) -> Any:
    return getattr(importlib.import_module(tools), name)(*args)
