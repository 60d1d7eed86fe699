"""Search for the first tensor that differs from a reference, in two steps: tags, then ops."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from compile_dag import Value
from lang_core import EntryPoint
from runtime.dump import TensorLabel
from tapeline.compare import ComparedTensor, Comparison, compare_tensors, left_out
from tapeline.divergence._references import Reference, recorded
from tapeline.divergence._runners import Runner
from tapeline.divergence._shown import Shown, made_for, tagged, with_results

Array = np.ndarray[Any, Any]

# Largest size of inner tensors in one run; more tensors take several runs.
_BATCH_BYTES: Final = 1 << 30


def locate(
    entry_point: EntryPoint,
    inputs: Mapping[str, Array],
    runner: Runner,
    reference: Reference,
    tolerance: float,
    *,
    step: int = 0,
) -> Comparison:
    """Compares the tensors inside of an entry point with those of a reference.

    The model's tags, which include every block's input and output, are compared first. Then every op's result is
    compared between the last tags that agree and the first that does not. Graphs with inner tensors as results are
    lowered anew: flat, and with more results, so that the compiler fuses less. If the fault is in a fusion that does
    not occur then, all tensors agree.

    Args:
        entry_point: entry point that diverges.
        inputs: inputs with which it diverges, by argument.
        runner: runner that lowers and runs its graphs.
        reference: values to compare with.
        tolerance: tolerance for floats.
        step: number of the call, for labels.

    Returns:
        The tags, and before the first one that diverges the ops that made it.
    """
    search = _Search(entry_point, inputs, runner, reference, tolerance, step)
    return Comparison(runner.name, reference.name, tolerance, tuple(search.tensors()))


class _Search:
    def __init__(
        self,
        entry_point: EntryPoint,
        inputs: Mapping[str, Array],
        runner: Runner,
        reference: Reference,
        tolerance: float,
        step: int,
    ) -> None:
        self._entry_point, self._graph = entry_point, recorded(entry_point)
        self._inputs = {
            argument.name: inputs[argument.name].astype(argument.spec.dtype.numpy) for argument in entry_point.arguments
        }
        self._runner, self._reference = runner, reference
        self._tolerance, self._step = tolerance, step

    def tensors(self) -> Iterator[ComparedTensor]:
        """Yields all compared tensors, in order."""
        shown = tagged(self._graph)
        compared: list[ComparedTensor] = []
        for batch in _batches(shown):
            compared += self._compared(batch, self._reference.tags(batch, self._inputs))
        first = next((i for i, row in enumerate(compared) if row.diverges), len(compared))
        yield from compared[:first]
        if first < len(compared):
            agreeing = {tag.value for tag, row in zip(shown, compared, strict=True) if row.state == "agrees"}
            yield from self._ops(shown[first].value, agreeing)
        yield from compared[first:]

    def _ops(self, target: Value, agreeing: set[Value]) -> Iterator[ComparedTensor]:
        """Yields the ops that made a value, up to the first that diverges."""
        for batch in _batches(made_for(self._graph, target, agreeing)):
            rows = self._compared(batch, self._reference.ops(batch, self._graph, self._inputs))
            yield from rows
            if any(row.diverges for row in rows):
                return

    def _compared(self, shown: Sequence[Shown], expected: Sequence[Array | None]) -> list[ComparedTensor]:
        results = self._runner.run(with_results(self._graph, shown), self._entry_point.arguments, self._inputs)
        inner = results[len(self._graph.outputs) :]
        return [self._row(*columns) for columns in zip(shown, inner, expected, strict=True)]

    def _row(self, shown: Shown, actual: Array, expected: Array | None) -> ComparedTensor:
        info = shown.info
        label = TensorLabel(
            step=self._step,
            entry_point=self._entry_point.name,
            name=info.name,
            direction="TAG",
            when="during",
            iteration=shown.iteration,
            module_path=info.module_path,
            op=info.op,
            line=info.line,
        )
        if expected is None:
            return left_out(label, info.spec, missing=False)
        return compare_tensors(label, actual, expected, self._tolerance)


def _batches(shown: Sequence[Shown]) -> Iterator[list[Shown]]:
    """Splits tensors into batches of a limited size."""
    batch: list[Shown] = []
    room = _BATCH_BYTES
    for tensor in shown:
        nbytes = tensor.info.spec.nbytes
        if batch and nbytes > room:
            yield batch
            batch, room = [], _BATCH_BYTES
        batch.append(tensor)
        room -= nbytes
    if batch:
        yield batch
