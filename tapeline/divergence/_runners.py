"""Runners of graphs: a device, or StableHLO's interpreter."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from compile_dag import ComputeGraph
from compile_hlo.emit import (
    ArgumentParameters,
    ExternalParameters,
    Form,
    InlineParameters,
    ModuleWriter,
    Overrides,
    ParameterTable,
)
from compile_hlo.passes import without_common_subexpressions, without_dead_code
from compile_hlo.portable import interpret
from compile_hlo.quirks import QUIRKS, XLA_QUIRKS
from lang_core import Argument, WeightSource
from run_iree import Session, compile_module, target_named, target_of_device
from tapeline.backends import xla_function
from tapeline.bundle import SCOPE

Array = np.ndarray[Any, Any]


class Runner(Protocol):
    """Runner that lowers a graph as an export does, but flat, and runs it.

    Attributes:
        name: name for messages.
    """

    @property
    def name(self) -> str: ...

    def run(self, graph: ComputeGraph, arguments: Sequence[Argument], inputs: Mapping[str, Array]) -> list[Array]:
        """Returns the results in the graph's order."""
        ...


class DeviceRunner:
    """Runner on a device of IREE.

    Args:
        device: name of the device.
        weights: archive of the model's weights, or a source of weights that are written into the module.
    """

    def __init__(self, device: str, weights: WeightSource | Path) -> None:
        self.name: Final = device
        self._weights = weights

    def run(self, graph: ComputeGraph, arguments: Sequence[Argument], inputs: Mapping[str, Array]) -> list[Array]:
        """Compiles the graph and runs it."""
        with tempfile.TemporaryDirectory(prefix="tapeline-divergence-") as folder:
            text, executable = Path(folder, "module.mlir"), Path(folder, "module.vmfb")
            _write(text, graph, arguments, self._form())
            compile_module(text, executable, target_named(target_of_device(self.name)))
            archive = self._weights if isinstance(self._weights, Path) else None
            with Session(executable, self.name, parameters=archive, scope=SCOPE) as session:
                values = [int(inputs[a.name]) if a.kind == "scalar" else inputs[a.name] for a in arguments]
                return [tensor.numpy() for tensor in session.function(graph.name)(*values)]

    def _form(self) -> Form:
        weights = self._weights
        if isinstance(weights, Path):
            return ExternalParameters(SCOPE)
        return InlineParameters(lambda path, spec: [weights.read(path).astype(spec.dtype.numpy, copy=False)])


class _ArgumentRunner(ABC):
    """Runner of graphs with weights as arguments.

    Args:
        weights: weights of the model.
    """

    name: str
    overrides: Overrides = QUIRKS

    def __init__(self, weights: WeightSource) -> None:
        self._weights: Final = weights

    def run(self, graph: ComputeGraph, arguments: Sequence[Argument], inputs: Mapping[str, Array]) -> list[Array]:
        """Lowers the graph and runs it."""
        with tempfile.TemporaryDirectory(prefix="tapeline-divergence-") as folder:
            text = Path(folder, "module.mlir")
            parameters = _write(text, graph, arguments, ArgumentParameters(), self.overrides)
            weights = [self._weights.read(path).astype(spec.dtype.numpy) for path, spec in parameters.items()]
            given = [np.asarray(inputs[argument.name], argument.spec.dtype.numpy) for argument in arguments]
            return self._called(text, [*given, *weights])

    @abstractmethod
    def _called(self, text: Path, values: Sequence[Array]) -> list[Array]:
        """Runs the one public function of a module."""


class InterpreterRunner(_ArgumentRunner):
    """Runner in StableHLO's reference interpreter."""

    name = "interpreter"

    def _called(self, text: Path, values: Sequence[Array]) -> list[Array]:
        return interpret(text, values)


class XlaRunner(_ArgumentRunner):
    """Runner on JAX's first device."""

    name = "xla"
    overrides = XLA_QUIRKS

    def _called(self, text: Path, values: Sequence[Array]) -> list[Array]:
        return list(xla_function(text)(*values))


def _write(
    path: Path, graph: ComputeGraph, arguments: Sequence[Argument], form: Form, overrides: Overrides = QUIRKS
) -> ParameterTable:
    lowered = without_common_subexpressions(without_dead_code(graph))
    with path.open("w") as file, ModuleWriter(file.write, form, overrides) as writer:
        parameters = writer.function(lowered, arguments).parameters
        writer.end()
    return parameters
