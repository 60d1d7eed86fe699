"""Tools of jaxlib's StableHLO. They run in the child process of ``_child.py``, which documents them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, stablehlo

from lang_core import VerificationError, plain_bools

_BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)


def verify_text(path: Path) -> None:
    """See ``_child.verify_text``."""
    context = new_context()
    context.allow_unregistered_dialects = True
    parsed(path, context)


def write_artifact(text: Path, artifact: Path, version: str) -> None:
    """See ``_child.write_artifact``."""
    context = new_context()
    module = parsed(text, context)
    with context:
        try:
            data = stablehlo.serialize_portable_artifact(module, version)
        except (RuntimeError, ValueError) as error:
            oldest, newest = stablehlo.get_minimum_version(), stablehlo.get_current_version()
            raise VerificationError(
                f"{text}: cannot become a StableHLO {version} artifact: {error}: take a version from {oldest} to "
                f"{newest} (`stablehlo_target_version`) that has all its ops; what lacks stands above"
            ) from None
    artifact.write_bytes(data)


def interpret(text: Path, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """See ``_child.interpret``."""
    context = new_context()
    module = parsed(text, context)
    with context:
        function = _public_function(module, text)
        function.attributes["sym_name"] = ir.StringAttr.get("main")  # the interpreter runs the function of this name
        narrow = _with_bfloat16_as_bits(function)
        try:
            results = stablehlo.eval_module(module, [_attribute(array) for array in inputs])
        except (RuntimeError, ValueError) as error:
            raise VerificationError(f"{text}: the StableHLO interpreter refuses it: {error}") from None
        arrays = [np.array(result) for result in results]
    return [array.view(_BFLOAT16) if bits else array for array, bits in zip(arrays, narrow, strict=True)]


def new_context() -> ir.Context:
    """Returns a context with the dialects of StableHLO modules. jax has such a function, but its import is slow."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    return context


def parsed(path: Path, context: Any) -> Any:
    with context:
        try:
            module = ir.Module.parse(path.read_text())  # parseFile would put the path into artifacts
            module.operation.verify()
        except ir.MLIRError as error:
            said = str(error).replace('"-":', f"{path.name}:")
            raise VerificationError(f"{path}: no valid StableHLO: {said}") from None
    return module


def _attribute(array: np.ndarray[Any, Any]) -> Any:
    data: Any = np.asarray(
        plain_bools(array), order="C"
    )  # jaxlib's stubs want a Buffer, which NumPy's do not say it is
    if data.dtype == _BFLOAT16:
        return ir.DenseElementsAttr.get(data.view(np.uint16), type=ir.BF16Type.get(), shape=data.shape)
    return ir.DenseElementsAttr.get(data, signless=data.dtype != np.uint8, shape=data.shape)


def _public_function(module: Any, text: Path) -> Any:
    public = [function for function in module.body.operations if visibility(function) == "public"]
    if len(public) != 1:
        raise VerificationError(f"{text}: has {len(public)} public functions, the interpreter runs one: name one")
    return public[0]


def visibility(function: Any) -> str:
    attributes = function.attributes
    return attributes["sym_visibility"].value if "sym_visibility" in attributes else "public"


def _with_bfloat16_as_bits(function: Any) -> list[bool]:
    """Makes bf16 results of a function u16 bits, and returns which: jaxlib cannot return arrays of bf16."""
    end = function.regions[0].blocks[0].operations[len(function.regions[0].blocks[0].operations) - 1]
    narrow = [str(ir.ShapedType(operand.type).element_type) == "bf16" for operand in end.operands]
    bits = ir.IntegerType.get_unsigned(16)
    with ir.InsertionPoint(end), ir.Location.unknown():
        for index, operand in enumerate(end.operands):
            if narrow[index]:
                shape = ir.ShapedType(operand.type).shape
                end.operands[index] = stablehlo.bitcast_convert(ir.RankedTensorType.get(shape, bits), operand)
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    results = [operand.type for operand in end.operands]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kind.inputs, results))
    return narrow
