"""Three forms in which a module takes its parameters."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from compile_hlo.emit._builder import Write
from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._parameter_table import ParameterTable
from compile_hlo.emit._types import dense, quoted, symbol, tensor_type
from lang_core import TensorSpec, bool_


class ExternalParameters:
    """Parameters that IREE loads from an archive: ``#flow.parameter.named``. They never pass the compiler.

    IREE's ops stand in MLIR's generic form, which every StableHLO parser reads if it allows other dialects.

    Attributes:
        specs: parameters so far.
    """

    def __init__(self, scope: str = "model") -> None:
        self._scope = scope
        self.specs = ParameterTable()

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """Loads a global."""
        self.specs.add(path, spec)
        return emitter.new(f'"util.global.load"() {{global = {symbol(path)}}} : () -> {tensor_type(spec)}')

    def end(self, write: Write) -> None:
        """Writes the globals."""
        for path, spec in self.specs.items():
            kind = tensor_type(spec)
            write(
                f'  "util.global"() {{sym_name = {quoted(path)}, sym_visibility = "private", type = {kind}, '
                f"initial_value = #flow.parameter.named<{quoted(self._scope)}::{quoted(path)}> : {kind}}} : () -> ()\n"
            )


class InlineParameters:
    """Parameters as exact constants in the text.

    Args:
        read: returns a parameter's elements in row-major order, in pieces of any shape, in the dtype of its spec.
    """

    def __init__(self, read: Callable[[str, TensorSpec], Iterable[np.ndarray[Any, Any]]]) -> None:
        self._read = read

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """Writes the data, piece by piece."""
        return emitter.new_in_pieces(self._text(path, spec))

    def _text(self, path: str, spec: TensorSpec) -> Iterator[str]:
        if spec.dtype is bool_ or not spec.size:  # short, and not to be had in hexadecimal form
            pieces = [piece.reshape(-1) for piece in self._read(path, spec)]
            whole = np.concatenate([np.empty(0, spec.dtype.numpy), *pieces]).reshape(spec.shape)
            yield f"stablehlo.constant {dense(whole)} : {tensor_type(spec)}"
            return
        yield 'stablehlo.constant dense<"0x'
        for piece in self._read(path, spec):
            yield np.ascontiguousarray(piece).tobytes().hex()
        yield f'"> : {tensor_type(spec)}'

    def end(self, write: Write) -> None:
        """Writes nothing: the functions have it all."""


class ArgumentParameters:
    """Parameters as further arguments, after the entry point's own: pure StableHLO, for any consumer.

    Args:
        order: order of a function's parameters among its arguments; that of the function's own table if None.

    Attributes:
        specs: parameters of the function that is written next: a head comes before its body.
    """

    def __init__(self, order: Iterable[str] | None = None) -> None:
        self.specs = ParameterTable()
        self._order = None if order is None else list(order)
        self._names: dict[str, str] = {}

    def heads(self) -> list[str]:
        """Returns the arguments of a function that begins."""
        paths = self.specs if self._order is None else [path for path in self._order if path in self.specs]
        self._names = {path: f"%parameter.{i}" for i, path in enumerate(paths)}
        return [f"{name}: {tensor_type(self.specs[path])}" for path, name in self._names.items()]

    def load(self, emitter: Emitter, path: str, spec: TensorSpec) -> str:
        """Returns the argument's name."""
        return self._names[path]

    def end(self, write: Write) -> None:
        """Writes nothing: the functions have it all."""


Form = ExternalParameters | InlineParameters | ArgumentParameters
"""Form of parameters in the text."""
