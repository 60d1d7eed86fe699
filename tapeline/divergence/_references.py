"""References for the inside of an entry point: the eager context, or another runner."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from compile_dag import ComputeGraph, evaluate
from compile_hlo import record_entry_point
from lang_core import EagerExecutionContext, EagerTensor, EntryPoint, TagSelection, WeightSource
from tapeline.divergence._runners import Runner
from tapeline.divergence._shown import Shown, ops_of, tagged, with_results

Array = np.ndarray[Any, Any]

EVERY_TAG: Final = ("*",)


def recorded(entry_point: EntryPoint) -> ComputeGraph:
    """Records an entry point with all of its tags."""
    return record_entry_point(entry_point, TagSelection(EVERY_TAG))


class Reference(Protocol):
    """Source of the values inside of an entry point.

    Attributes:
        name: name for messages.
    """

    @property
    def name(self) -> str: ...

    def tags(self, shown: Sequence[Shown], inputs: Mapping[str, Array]) -> list[Array | None]:
        """Returns tagged values; None for a tag that it does not have."""
        ...

    def ops(self, shown: Sequence[Shown], graph: ComputeGraph, inputs: Mapping[str, Array]) -> list[Array | None]:
        """Returns results of ops of a graph; None for an op that it does not have."""
        ...


class EagerReference:
    """Reference values from the eager context.

    Args:
        entry_point: entry point of the model.
        weights: weights of the model.
    """

    def __init__(self, entry_point: EntryPoint, weights: WeightSource) -> None:
        self.name: Final = "the eager context"
        self._entry_point = entry_point
        self._weights = weights

    def tags(self, shown: Sequence[Shown], inputs: Mapping[str, Array]) -> list[Array | None]:
        """Returns the values of the model's own run, without a recorded graph."""
        wanted = {tag.key for tag in shown}
        met: dict[str, int] = {}
        made: dict[tuple[str, int], Array] = {}

        def sink(name: str, tensor: EagerTensor) -> None:
            key = name, met.get(name, 0)
            met[name] = key[1] + 1
            if key in wanted:
                made[key] = tensor.numpy()

        ctx = EagerExecutionContext(self._weights, tag_sink=sink)
        self._entry_point(ctx, *[ctx.constant(inputs[argument.name]) for argument in self._entry_point.arguments])
        return [made.get(tag.key) for tag in shown]

    def ops(self, shown: Sequence[Shown], graph: ComputeGraph, inputs: Mapping[str, Array]) -> list[Array | None]:
        """Evaluates the graph's nodes one by one."""
        ctx = EagerExecutionContext(self._weights)
        given = {name: ctx.constant(inputs[name]) for name in graph.inputs}
        results = list(evaluate(with_results(graph, shown), ctx, given).values())
        return [tensor.numpy() for tensor in results[len(graph.outputs) :]]


class RunnerReference:
    """Reference values from another device, other weights or another dtype.

    Args:
        entry_point: entry point of the reference.
        runner: runner of the reference.
    """

    def __init__(self, entry_point: EntryPoint, runner: Runner) -> None:
        self.name: Final = runner.name
        self._entry_point = entry_point
        self._runner = runner
        self._graph = recorded(entry_point)

    def tags(self, shown: Sequence[Shown], inputs: Mapping[str, Array]) -> list[Array | None]:
        """Returns the reference's values of the same tags."""
        return self._values({tag.key: tag for tag in tagged(self._graph)}, shown, inputs)

    def ops(self, shown: Sequence[Shown], graph: ComputeGraph, inputs: Mapping[str, Array]) -> list[Array | None]:
        """Returns the results of the reference's ops in the same modules."""
        del graph
        return self._values({op.key: op for op in ops_of(self._graph)}, shown, inputs)

    def _values(
        self, known: Mapping[tuple[str, int], Shown], shown: Sequence[Shown], inputs: Mapping[str, Array]
    ) -> list[Array | None]:
        own = [known[tensor.key] for tensor in shown if tensor.key in known]
        arguments = self._entry_point.arguments
        given = {argument.name: inputs[argument.name].astype(argument.spec.dtype.numpy) for argument in arguments}
        results = self._runner.run(with_results(self._graph, own), arguments, given)
        made = dict(zip([tensor.key for tensor in own], results[len(self._graph.outputs) :], strict=True))
        return [made.get(tensor.key) for tensor in shown]
