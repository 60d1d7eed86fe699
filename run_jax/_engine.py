"""Functions of StableHLO modules on JAX's runtime."""

from pathlib import Path
from typing import Any, Final

import jax
import jax.extend.backend
import jax.interpreters.mlir
import numpy as np
from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue] - it has no stubs
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lang_core import DeviceError, InputError, OpError, VerificationError, as_dtype, near_names, plain_bools

_MAIN: Final = "main"
_NAMES: Final = {"i1": "bool", "ui8": "u8"}  # our dtypes by MLIR's name, if that differs


class StableHloFunction:
    """Public function of a module, compiled by XLA for JAX's first device.

    Args:
        source: path of text (``.mlir``) or of a portable artifact (``.vhlo``), or the text itself; pure StableHLO, in
            which parameters are arguments or constants.
        name: name of the function; may be None if the module has only one.

    Attributes:
        name: name of the function.
        argument_specs: shape and NumPy dtype of each argument.

    Raises:
        InputError: the file or the function does not exist.
        VerificationError: the module is not valid StableHLO, XLA refuses it, or an argument's dtype is unknown.
    """

    def __init__(self, source: Path | str, name: str | None = None) -> None:
        context = jax.interpreters.mlir.make_ir_context()
        where = str(source) if isinstance(source, Path) else "the module"
        with context:
            module = _parsed(source, where, context)
            function = _public(module, where, name)
            _make_room(module, function)
            self.name: Final[str] = ir.StringAttr(function.attributes["sym_name"]).value
            self.argument_specs: Final = _specs(function, where, self.name)
            function.attributes["sym_name"] = ir.StringAttr.get(_MAIN)  # XLA runs the function of this name
            options = jax.extend.backend.get_compile_options(num_replicas=1, num_partitions=1)
            device = jax.devices()[0]
            try:
                self._loaded = device.client.compile_and_load(module, _jax.DeviceList((device,)), options)
            except (RuntimeError, ValueError) as error:
                raise VerificationError(f"{where}: XLA refuses {self.name!r}: {error}") from None

    def __call__(self, *arrays: Any) -> tuple[np.ndarray[Any, Any], ...]:
        """Runs the function.

        Args:
            *arrays: arrays of NumPy or JAX, of the shapes and dtypes of ``argument_specs``.

        Returns:
            The results.

        Raises:
            DeviceError: an array has another shape or dtype.
        """
        specs = [(tuple(np.shape(array)), np.asarray(array).dtype) for array in arrays]
        if specs != self.argument_specs:
            raise DeviceError(f"{self.name!r} takes {self.argument_specs}, found {specs}")
        plain = [plain_bools(array) if isinstance(array, np.ndarray) else array for array in arrays]
        outputs = self._loaded.execute_sharded([jax.device_put(array) for array in plain])
        return tuple(np.asarray(shards[0]) for shards in outputs.disassemble_into_single_device_arrays())


def _parsed(source: Path | str, where: str, context: Any) -> Any:
    try:
        if isinstance(source, Path) and source.suffix == ".vhlo":
            return stablehlo.deserialize_portable_artifact(context, source.read_bytes())
        module = ir.Module.parse(source.read_text() if isinstance(source, Path) else source)
        module.operation.verify()
        return module
    except FileNotFoundError:
        raise InputError(f"{where}: no such file") from None
    except (ir.MLIRError, ValueError) as error:
        raise VerificationError(f"{where}: not valid StableHLO: {error}") from None


def _public(module: Any, where: str, name: str | None) -> Any:
    """Returns the function of a name, or the only public one; makes all other public functions private."""
    functions = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations}
    private = {key for key, op in functions.items() if "private" in str(op.attributes.get("sym_visibility", ""))}
    known = [key for key in functions if key not in private]
    if name is None and len(known) == 1:
        name = known[0]
    if name is None:
        raise InputError(f"{where}: has the functions {', '.join(known)}: choose one with name=")
    if name not in known:
        raise InputError(
            f"{where}: function {name!r} not found; available: {', '.join(known)}{near_names(name, known)}"
        )
    for key in known:
        if key != name:
            functions[key].attributes["sym_visibility"] = ir.StringAttr.get("private")
    return functions[name]


def _make_room(module: Any, function: Any) -> None:
    """Renames a function of the name that XLA runs, if it is another one; entry points do not call each other."""
    names = {ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body.operations}
    other = names.get(_MAIN)
    if other is not None and other.operation != function.operation:
        fresh = next(name for i in range(len(names) + 1) if (name := f"{_MAIN}.{i}") not in names)
        other.attributes["sym_name"] = ir.StringAttr.get(fresh)


def _specs(function: Any, where: str, name: str) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    kinds = [ir.RankedTensorType(kind) for kind in function.type.inputs]
    elements = [str(kind.element_type) for kind in kinds]
    try:
        dtypes = [as_dtype(_NAMES.get(element, element)).numpy for element in elements]
    except OpError as error:
        raise VerificationError(f"{where}: an argument of {name!r}: {error}") from None
    return [(tuple(kind.shape), dtype) for kind, dtype in zip(kinds, dtypes, strict=True)]
