"""StableHLO's tools, each call in a child process: jaxlib's memory is not ours, and its crash is an error here."""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import Axes, MeshShape, VerificationError, load_extra, python_command

# Imported by the child alone.
_TOOLS: Final = "compile_hlo.portable._stablehlo"
_PARTITIONER: Final = "compile_hlo.portable._per_device"

_PROGRAM: Final = """import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from compile_hlo.portable._child import answer_call
answer_call()
"""

# Artifacts of this StableHLO version are read by every consumer that is younger.
ARTIFACT_VERSION: Final = "1.0.0"
"""StableHLO version of portable artifacts, which every younger consumer reads."""


def verify_text(path: Path) -> None:
    """Parses and verifies a module; ops of other dialects must be in the generic form.

    Raises:
        VerificationError: the module is not valid.
    """
    _in_child("verify_text", path)


def write_artifact(text: Path, artifact: Path, version: str = ARTIFACT_VERSION) -> None:
    """Serialises pure StableHLO text as a portable artifact (VHLO bytecode).

    Raises:
        VerificationError: the text is not valid StableHLO, or has ops that ``version`` lacks.
    """
    _in_child("write_artifact", text, artifact, version)


def interpret(text: Path, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Runs the only public function of pure StableHLO text in the reference interpreter, which is slow.

    Args:
        text: file of the module.
        arrays: arrays, one per argument, of its shape and dtype.

    Returns:
        Arrays, one per result, of its shape and dtype.

    Raises:
        VerificationError: the text is not valid, or the interpreter refuses it.
    """
    return _in_child("interpret", text, list(arrays))


def write_per_device(
    text: Path, output: Path, mesh: MeshShape, axes: Mapping[str, tuple[Sequence[Axes], Sequence[Axes]]]
) -> dict[str, list[int]]:
    """Writes the program of one device of a mesh, with explicit collectives; that of the others is the same.

    Devices are numbered along the axes of the mesh, the last one fastest; a device asks for its own number by
    ``partition_id``. Tensors that a gather searches stay whole.

    Args:
        text: pure StableHLO text of the whole program.
        output: file for the text of one device.
        mesh: the mesh.
        axes: per public function the axes of its arguments and of its results, in order.

    Returns:
        Per function the numbers of the arguments that stay whole although ``axes`` cut them.

    Raises:
        VerificationError: the text is not valid, a function is not there, or jaxlib's passes fail on one.
    """
    whole = _in_child("write_per_device", text, output, mesh, dict(axes), tools=_PARTITIONER)
    verify_text(output)
    return whole


def _in_child(name: str, *args: Any, tools: str = "") -> Any:
    """Calls a tool. A child of multiprocessing would first import all that the program of its parent imports."""
    # Files, not pipes: arrays are written one by one, and are not in memory a second time.
    with tempfile.TemporaryFile() as work, tempfile.TemporaryFile() as answer:
        for value in (sys.path, (tools or _TOOLS, name, args)):
            pickle.dump(value, work, protocol=pickle.HIGHEST_PROTOCOL)
        work.seek(0)
        status = subprocess.run(
            # A group of its own: Ctrl-C is for the program, which kills the child.
            python_command("-c", _PROGRAM),
            stdin=work,
            stdout=answer,
            check=False,
            process_group=0,
        ).returncode
        answer.seek(0)
        if status != 0:
            raise VerificationError(f"{name}: the process that ran it died; its output stands above")
        result, error = pickle.load(answer)  # noqa: S301 - of our own child
    if error is not None:
        raise error
    return result


def answer_call() -> None:
    """Answers, in the child, the call on stdin by its result on stdout; all other output goes to stderr."""
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        tools, name, args = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own parent
        try:
            outcome = getattr(load_extra(tools, "jax", f"StableHLO's {name}"), name)(*args), None
        except Exception as error:  # noqa: BLE001 - the parent raises it
            outcome = None, _sent(name, error)
        pickle.dump(outcome, answer)


def _sent(name: str, error: Exception) -> Exception:
    """Returns an error that can be sent: jaxlib's errors hold unpicklable values."""
    try:
        pickle.dumps(error)
    except TypeError:
        return VerificationError(f"{name}: {error}")
    return error
