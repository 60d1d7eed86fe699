"""What jaxlib's StableHLO can tell of a module: parsed, verified, serialised, interpreted.

These functions hold whole modules in memory, and native code may end the process: call them in a child
(``compile_hlo.portable.in_child``).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import jax.interpreters.mlir
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lang_core import VerificationError

# Artifacts of this StableHLO version are read by every consumer that is younger.
ARTIFACT_VERSION: Final = "1.0.0"


def verify_text(path: Path) -> None:
    """Parses and verifies a module; ops of other dialects must be in the generic form.

    Raises:
        VerificationError: it is not valid.
    """
    context = jax.interpreters.mlir.make_ir_context()
    context.allow_unregistered_dialects = True
    _parsed(path, context)


def write_artifact(text: Path, artifact: Path, version: str = ARTIFACT_VERSION) -> None:
    """Serialises pure StableHLO text as a portable artifact (VHLO bytecode).

    Raises:
        VerificationError: the text is no valid StableHLO, or has what ``version`` lacks.
    """
    context = jax.interpreters.mlir.make_ir_context()
    module = _parsed(text, context)
    with context:
        try:
            data = stablehlo.serialize_portable_artifact(module, version)
        except Exception as error:  # noqa: BLE001 - the binding raises whatever it likes
            raise VerificationError(f"{text}: cannot become a StableHLO {version} artifact: {error}") from None
    artifact.write_bytes(data)


def interpret(text: Path, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Runs the module's only function in the StableHLO reference interpreter: slow, and the truth.

    Args:
        text: pure StableHLO.
        arrays: one per argument.

    Returns:
        One array per result.

    Raises:
        VerificationError: the text is not valid, or the interpreter refuses it.
    """
    context = jax.interpreters.mlir.make_ir_context()
    module = _parsed(text, context)
    with context:
        try:
            results = stablehlo.eval_module(module, [_attribute(array) for array in arrays])
        except Exception as error:  # noqa: BLE001 - the binding raises whatever it likes
            raise VerificationError(f"{text}: the StableHLO interpreter refuses it: {error}") from None
        return [np.array(result) for result in results]


def _parsed(path: Path, context: Any) -> Any:
    with context:
        try:
            module = ir.Module.parseFile(str(path)) if hasattr(ir.Module, "parseFile") else ir.Module.parse(
                path.read_text()
            )
            module.operation.verify()
        except ir.MLIRError as error:
            raise VerificationError(f"{path}: no valid StableHLO: {error}") from None
    return module


def _attribute(array: np.ndarray[Any, Any]) -> Any:
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array))
