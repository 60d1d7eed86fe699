"""Functions of a portable artifact, each as a module of its own that JAX can call."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax.interpreters.mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lang_core import DType, InputError, OpError, TensorSpec, VerificationError, as_dtype, near_names
from run_jax.sessions._products import are_in_all_bits, improve_products
from run_jax.sessions._traces import Trace, return_traces

_MAIN: Final = "main"
_NAMES: Final = {"ui8": "u8", "i1": "bool"}  # our dtypes by MLIR's name, if that differs


class ArtifactFunction(NamedTuple):
    """Public function of an artifact, as a module in which it is called ``main``.

    Attributes:
        artifact: bytes of the module, a portable artifact again.
        arguments: shape and dtype of every argument of the function.
        kept: numbers of the arguments that the module takes: parameters that the function does not use are left out.
        results: shapes and dtypes.
        all_bits: True if every product of f32 is asked for in the highest precision; else a GPU or a TPU computes
            with fewer bits.
        traces: tensors that are further results of the module, behind those of the function.
        shown: their shapes and dtypes.
    """

    artifact: bytes
    arguments: tuple[TensorSpec, ...]
    kept: tuple[int, ...]
    results: tuple[TensorSpec, ...]
    all_bits: bool
    traces: tuple[Trace, ...] = ()
    shown: tuple[TensorSpec, ...] = ()


class Artifact:
    """Portable artifact (``module.vhlo``) of several public functions, or StableHLO text with traces of IREE.

    Attributes:
        path: path of the file.
        names: names of the public functions.
    """

    def __init__(self, path: Path, text: str | None = None) -> None:
        """Reads the file.

        Args:
            path: path of the artifact.
            text: replacement of the artifact: text that was made from the file at that path, with traces.

        Raises:
            InputError: the file is missing.
            VerificationError: it is not an artifact.
        """
        self.path: Final = path
        self._text: Final = text
        try:
            self._bytes: Final = b"" if text is not None else path.read_bytes()
        except FileNotFoundError:
            raise InputError(f"cannot load the module {str(path)!r}: file not found; export writes it") from None
        with jax.interpreters.mlir.make_ir_context() as context:
            module = self._parsed(context)  # its functions do not keep it alive
            self.names: Final = tuple(_name(op) for op in _functions(module) if _is_public(op))

    def function(self, name: str, always: int, platform: str, devices: int, rounds: int = 1) -> ArtifactFunction:
        """Returns a public function as a module, with products in the forms that XLA compiles well.

        Args:
            name: name of the function.
            always: number of arguments that are kept even if nothing uses them, the first ones.
            platform: kind of the devices that it is for.
            devices: their number.
            rounds: rounds of loops for which there is place in the results of traces.

        Raises:
            InputError: the function is not found.
            VerificationError: an argument or a result has a dtype that is not in the table.
        """
        if name not in self.names:
            raise InputError(
                f"{self.path}: function {name!r} not found; available: {', '.join(self.names)}"
                f"{near_names(name, self.names)}"
            )
        with jax.interpreters.mlir.make_ir_context() as context:
            module = self._parsed(context)
            for op in _functions(module):
                if _name(op) != name and _is_public(op):
                    op.erase()
            (function,) = [op for op in _functions(module) if _name(op) == name]
            arguments, results = self._specs(name, function.type.inputs), self._specs(name, function.type.results)
            kept = _keep_used(function, always)
            traces = () if self._text is None else return_traces(function, rounds)
            shown = self._specs(name, function.type.results)[len(results) :]
            _rename(function)
            improve_products(module, platform, devices)
            all_bits = are_in_all_bits(module)  # before it is serialized, which takes StableHLO's ops from the module
            return ArtifactFunction(_serialized(module), arguments, kept, results, all_bits, traces, shown)

    def _parsed(self, context: Any) -> Any:
        try:
            if self._text is not None:
                context.allow_unregistered_dialects = True
                return ir.Module.parse(self._text, context)
            return stablehlo.deserialize_portable_artifact(context, self._bytes)
        except (ir.MLIRError, ValueError, RuntimeError) as error:
            raise VerificationError(
                f"{self.path}: truncated, or not a portable artifact ({error}): export again"
            ) from None

    def _specs(self, name: str, types: Sequence[Any]) -> tuple[TensorSpec, ...]:
        try:
            return tuple(TensorSpec(tuple(kind.shape), _dtype(kind)) for kind in map(ir.RankedTensorType, types))
        except OpError as error:
            raise VerificationError(f"{self.path}: function {name!r}: {error}: export again") from None


def _serialized(module: Any) -> bytes:
    """Returns a module in the newest version, which jaxlib reads back in the same process."""
    return stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())


def _functions(module: Any) -> list[Any]:
    return list(module.body.operations)


def _name(function: Any) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def _is_public(function: Any) -> bool:
    return "private" not in str(function.attributes.get("sym_visibility", ""))


def _dtype(kind: Any) -> DType:
    name = str(kind.element_type)
    return as_dtype(_NAMES.get(name, name))


def _keep_used(function: Any, always: int) -> tuple[int, ...]:
    """Erases arguments that nothing uses, but for the first ones, and every alias; returns the numbers of the rest."""
    block = function.regions[0].blocks[0]
    kept = tuple(i for i, value in enumerate(block.arguments) if i < always or list(value.uses))
    inputs = function.type.inputs
    for index in reversed(range(len(inputs))):
        if index not in kept:
            block.erase_argument(index)
    if "arg_attrs" in function.attributes:  # donation is said to jit, for the whole program
        del function.attributes["arg_attrs"]
    kind = ir.FunctionType.get([inputs[i] for i in kept], function.type.results)
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
    return kept


def _rename(function: Any) -> None:
    function.attributes["sym_name"] = ir.StringAttr.get(_MAIN)
