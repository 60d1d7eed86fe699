"""Entry points as XLA compiles them for several devices, and what is exchanged in its text."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from compile_hlo import lower_module
from compile_hlo.emit import PARTITIONED, ArgumentParameters
from lang_core import Axes, EntryPoint, MappingWeights, MeshShape, TensorSpec
from run_jax.sessions import Partitions, Session, device_mesh
from tapeline.analysis.counting import Work, count_work
from transformer_core.models import Model
from transformer_core.sharding import cache_axes, result_axes, sharding

_KINDS: Final = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
# One exchange may have several tensors: XLA puts those that do not wait for each other together.
_EXCHANGE: Final = re.compile(rf"= (\(.*?\)|\S+) ({_KINDS})(?:-start)?\(")
_TENSOR: Final = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_BYTES: Final = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8}

Exchanges = Counter[tuple[str, int]]
"""How often a tensor of so many bytes is exchanged, by kind."""


class Planned:
    """Entry point of a model on a mesh: what is predicted, and what XLA compiles.

    Args:
        model: the model.
        point: one of its entry points.
        mesh: the mesh.
        batch: B.
        points: other entry points of the model, whose caches its results may be.
    """

    def __init__(
        self, model: Model[Any], point: EntryPoint, mesh: MeshShape, batch: int, points: Sequence[EntryPoint] = ()
    ) -> None:
        self._point, self._mesh, self._batch = point, mesh, batch
        self._parameters = sharding(model, mesh).parameters
        self._kept = cache_axes([point, *points], mesh)

    def predicted(self) -> Work:
        """Returns what is counted."""
        return count_work(self._point, self._mesh, lambda path, _: self._parameters[path], self._axes).work

    def compiled(self, directory: Path) -> str:
        """Returns the text of what XLA runs."""
        text: list[str] = []
        lowered = lower_module([self._point], text.append, ArgumentParameters(), overrides=PARTITIONED)
        (function,) = lowered.functions
        tensors = [(a.name, a.spec) for a in (*function.signature.arguments, *function.signature.results)]
        values = {(self._point.name, name): self._axes(name, spec) for name, spec in tensors}
        session = Session(
            _artifact("".join(text), directory / "module.vhlo"),
            signatures=[function.signature],
            weights=MappingWeights(_zeros(lowered.parameters())),
            parameters=list(lowered.parameters()),
            partitions=Partitions(device_mesh(self._mesh.sizes), self._parameters, values),
        )
        with session:
            return session.compiled_text(self._point.name)

    def _axes(self, name: str, spec: TensorSpec) -> Axes:
        return self._kept.get(name) or result_axes([(name, spec)], (), self._mesh, self._batch)[name]


def predicted_exchanges(work: Work) -> Exchanges:
    """Returns the exchanges of counted work."""
    exchanges: Exchanges = Counter()
    for row, count in work.collectives.items():
        exchanges[row.kind, row.bytes] += count
    return exchanges


def compiled_exchanges(text: str) -> Exchanges:
    """Returns the exchanges in a text of XLA's, each tensor of a tuple by itself."""
    exchanges: Exchanges = Counter()
    for tensors, kind in _EXCHANGE.findall(text):
        for dtype, dims in _TENSOR.findall(tensors):
            exchanges[kind, _BYTES[dtype] * math.prod(map(int, filter(None, dims.split(","))))] += 1
    return exchanges


def _zeros(specs: Mapping[str, TensorSpec]) -> dict[str, np.ndarray]:
    return {path: np.zeros(spec.shape, spec.dtype.numpy) for path, spec in specs.items()}


def _artifact(text: str, path: Path) -> Path:
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        path.write_bytes(stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version()))
    return path
