"""Ways to run a flow besides the eager one."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compile_dag import evaluate
from compile_hlo import lower_module, record_entry_point
from compile_hlo.emit import ArgumentParameters, ExternalParameters
from compile_hlo.portable import interpret
from lang_core import EagerExecutionContext, EntryPoint, MappingWeights, Module, WeightSource

Arrays = Sequence[np.ndarray]


def random_weights(module: Module) -> MappingWeights:
    """Weights of a module: the norms' lie around 1. They depend on the parameter's path only."""
    arrays: dict[str, np.ndarray] = {}
    for path, parameter in module.named_parameters():
        values = np.random.default_rng(zlib.crc32(path.encode())).standard_normal(parameter.spec.shape)
        values = 1 + values / 8 if parameter.spec.ndim == 1 else values / np.sqrt(parameter.spec.shape[-1])
        arrays[path] = values.astype(parameter.spec.dtype.numpy)
    return MappingWeights(arrays)


def lowered(points: Sequence[EntryPoint], *, streaming: bool = False, block_functions: bool = True) -> str:
    """The text of a module with weights in an archive."""
    pieces: list[str] = []
    form = ExternalParameters()
    lower_module(points, pieces.append, form, streaming=streaming, block_functions=block_functions)
    return "".join(pieces)


def eager(point: EntryPoint, weights: WeightSource | None, inputs: Arrays) -> dict[str, np.ndarray]:
    """Computed at once."""
    ctx = EagerExecutionContext(weights)
    results = point(ctx, *(ctx.constant(array) for array in inputs))
    return {name: tensor.numpy() for name, tensor in results.items()}


def recorded(point: EntryPoint, weights: WeightSource | None, inputs: Arrays) -> dict[str, np.ndarray]:
    """Recorded, and then computed from the graph."""
    ctx = EagerExecutionContext(weights)
    named = {argument.name: ctx.constant(array) for argument, array in zip(point.arguments, inputs, strict=True)}
    results = evaluate(record_entry_point(point), ctx, named)
    return {name: tensor.numpy() for name, tensor in results.items()}


def inputs_of(point: EntryPoint, seed: int = 0) -> list[np.ndarray]:
    """Small numbers for every argument: token ids below 7, scalars 1."""
    random = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    for argument in point.arguments:
        spec = argument.spec
        if argument.kind == "scalar":
            arrays.append(np.ones(spec.shape, spec.dtype.numpy))
        elif spec.dtype.is_integer:
            arrays.append(random.integers(0, 7, spec.shape).astype(spec.dtype.numpy))
        else:
            arrays.append((random.standard_normal(spec.shape) / 2).astype(spec.dtype.numpy))
    return arrays


def interpreted(point: EntryPoint, weights: WeightSource, inputs: Arrays, folder: Path) -> dict[str, np.ndarray]:
    """Lowered, and then run by StableHLO's interpreter."""
    pieces: list[str] = []
    function = lower_module([point], pieces.append, ArgumentParameters(), block_functions=False).functions[0]
    path = folder / "module.mlir"
    path.write_text("".join(pieces))
    values = [weights.read(name).astype(spec.dtype.numpy) for name, spec in function.parameters.items()]
    return dict(zip(function.results, interpret(path, [*inputs, *values]), strict=True))
