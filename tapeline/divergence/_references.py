"""What a lowered entry point is compared with, from the inside: the eager context, or the same elsewhere."""

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
    """An entry point with all of its tags."""
    return record_entry_point(entry_point, TagSelection(EVERY_TAG))


class Reference(Protocol):
    """Gives values from inside of an entry point.

    Attributes:
        name: for messages.
    """

    @property
    def name(self) -> str: ...

    def tags(self, shown: Sequence[Shown], inputs: Mapping[str, Array]) -> list[Array | None]:
        """Tagged values; None where there is none of that name."""
        ...

    def ops(self, shown: Sequence[Shown], graph: ComputeGraph, inputs: Mapping[str, Array]) -> list[Array | None]:
        """Results of ops of a graph; None where there is none of that name."""
        ...


class EagerReference:
    """The eager context.

    Args:
        entry_point: of the model.
        weights: of the model.
    """

    def __init__(self, entry_point: EntryPoint, weights: WeightSource) -> None:
        self.name: Final = "the eager context"
        self._entry_point = entry_point
        self._weights = weights

    def tags(self, shown: Sequence[Shown], inputs: Mapping[str, Array]) -> list[Array | None]:
        """What the model itself makes: nothing recorded has a part in it."""
        wanted = {each.key for each in shown}
        met: dict[str, int] = {}
        made: dict[tuple[str, int], Array] = {}

        def sink(name: str, tensor: EagerTensor) -> None:
            key = name, met.get(name, 0)
            met[name] = key[1] + 1
            if key in wanted:
                made[key] = tensor.numpy()

        ctx = EagerExecutionContext(self._weights, tag_sink=sink)
        self._entry_point(ctx, *[ctx.constant(inputs[each.name]) for each in self._entry_point.arguments])
        return [made.get(each.key) for each in shown]

    def ops(self, shown: Sequence[Shown], graph: ComputeGraph, inputs: Mapping[str, Array]) -> list[Array | None]:
        """What the graph's nodes make, one by one."""
        ctx = EagerExecutionContext(self._weights)
        given = {name: ctx.constant(inputs[name]) for name in graph.inputs}
        results = list(evaluate(with_results(graph, shown), ctx, given).values())
        return [tensor.numpy() for tensor in results[len(graph.outputs) :]]


class RunnerReference:
    """The same entry point on another device, with other weights or in another dtype.

    Args:
        entry_point: as the other has it.
        runner: of the other.
    """

    def __init__(self, entry_point: EntryPoint, runner: Runner) -> None:
        self.name: Final = runner.name
        self._entry_point = entry_point
        self._runner = runner
        self._graph = recorded(entry_point)

    def tags(self, shown: Sequence[Shown], inputs: Mapping[str, Array]) -> list[Array | None]:
        """What the other has under the same tags."""
        return self._values({each.key: each for each in tagged(self._graph)}, shown, inputs)

    def ops(self, shown: Sequence[Shown], graph: ComputeGraph, inputs: Mapping[str, Array]) -> list[Array | None]:
        """What the other's ops of the same modules give."""
        del graph
        return self._values({each.key: each for each in ops_of(self._graph)}, shown, inputs)

    def _values(
        self, known: Mapping[tuple[str, int], Shown], shown: Sequence[Shown], inputs: Mapping[str, Array]
    ) -> list[Array | None]:
        own = [known[each.key] for each in shown if each.key in known]
        arguments = self._entry_point.arguments
        given = {each.name: inputs[each.name].astype(each.spec.dtype.numpy) for each in arguments}
        results = self._runner.run(with_results(self._graph, own), arguments, given)
        made = dict(zip([each.key for each in own], results[len(self._graph.outputs) :], strict=True))
        return [made.get(each.key) for each in shown]
