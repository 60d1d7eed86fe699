"""Writer of a function's body, stretch by stretch, and the aliases of its arguments."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from compile_dag import Node, Stretch, Value
from compile_hlo.directions import (
    FunctionFlow,
    FunctionOverlaps,
    LoweredArgument,
    StretchFlow,
    StretchOverlaps,
    StretchUses,
    stretch_overlaps,
)
from compile_hlo.emit._all_rules import CHAINS
from compile_hlo.emit._block_call import BlockCall, CallSite
from compile_hlo.emit._blocks import BlockFunctions
from compile_hlo.emit._builder import Write
from compile_hlo.emit._emitter import LEAVES, Emitter
from compile_hlo.emit._sites import KernelSite
from compile_hlo.passes import with_groups, with_row_writes
from lang_core import Argument, GraphError, TensorSpec, near_names


class WrittenStretch(NamedTuple):
    """Part of a stretch's lowering that does not depend on the stretch's position.

    Attributes:
        call: call of the block's function; None if the nodes are written in place.
        uses: uses that the stretch makes of its values.
        overlaps: updates of the stretch, and the roots of its results.
        overlapping: numbers of the updates that overlap.
    """

    call: BlockCall | None
    uses: StretchUses
    overlaps: StretchOverlaps
    overlapping: frozenset[int]


class FunctionWriter:
    """Writer of one function's body, stretch by stretch.

    Attributes:
        parameters: weights that the function reads so far.
        directions: directions of its tensor arguments, once it has ended.

    Blocks are written in place if ``inlined``; ``blocks`` then has the signatures of the calls that they would be.
    """

    directions: tuple[LoweredArgument, ...] = ()

    def __init__(
        self,
        write: Write,
        emitter: Emitter,
        blocks: BlockFunctions,
        flow: FunctionFlow,
        results: Sequence[str],
        head: Sequence[LoweredArgument],
        inlined: bool,
    ) -> None:
        self._head = head
        self._inlined = inlined
        self._results = tuple(results)
        self._write = write
        self._emitter = emitter
        self._blocks = blocks
        self._flow = flow
        self._overlaps = FunctionOverlaps()
        self.parameters = emitter.parameters

    def stretch(self, nodes: Sequence[Node], results: Sequence[Value]) -> WrittenStretch:
        """Writes the nodes between two block boundaries.

        Args:
            nodes: nodes, in order.
            results: those of their results that are used later, in order.

        Returns:
            Repeatable part of the lowering of equal stretches.
        """
        flow, overlaps = StretchFlow(nodes), stretch_overlaps(nodes, results)
        overlapping = self._emitter.overlaps = self.overlapping(overlaps)
        nodes = self._emitter.with_products(nodes)
        if self._emitter.overrides.row_writes:
            nodes = with_row_writes(nodes, {value.number for value in results})
        nodes = with_groups(nodes, results, self._emitter.leaves, CHAINS)
        call = None
        if all(not node.block or node.op.name in LEAVES for node in nodes):
            self._emitter.nodes(nodes)
        else:
            self._emitter.enter(nodes[0].stretch)
            made = [value for value in results if value.op_name not in LEAVES]
            site = CallSite(nodes, made, flow, self._flow)
            if self._inlined:
                self._blocks.inline(site, self._emitter)
            else:
                call = self._blocks.call(site, self._emitter)
        uses = flow.uses(nodes, results)
        self._flow.stretch(uses)
        self._overlaps.add(overlaps.results)
        return WrittenStretch(call, uses, overlaps, overlapping)

    def overlapping(self, overlaps: StretchOverlaps) -> frozenset[int]:
        """Returns the numbers of a stretch's updates with operands computed from the overwritten buffer."""
        return self._overlaps.overlapping(overlaps.updates)

    def repeat(self, call: BlockCall, uses: StretchUses, overlaps: StretchOverlaps, stretch: Stretch) -> None:
        """Writes a stretch with an existing function.

        Args:
            call: call of the function, with the values and parameters of this stretch.
            uses: uses that the stretch makes of its values.
            overlaps: updates of the stretch, and the roots of its results.
            stretch: the stretch.
        """
        self._emitter.enter(stretch)
        self._blocks.repeat(call, self._flow, self._emitter)
        self._flow.stretch(uses)
        self._overlaps.add(overlaps.results)

    @property
    def sites(self) -> tuple[KernelSite, ...]:
        """Calls of kernels with traced tensors."""
        return () if self._emitter.tracer is None else tuple(self._emitter.tracer.sites)

    def forget(self, values: Iterable[Value]) -> None:
        """Drops the facts of values that are not used any more."""
        gone = list(values)
        self._emitter.forget(gone)
        numbers = [value.number for value in gone]
        self._flow.forget(numbers)
        self._overlaps.forget(numbers)

    def end(self, results: Sequence[Value]) -> None:
        """Writes the return.

        Raises:
            GraphError: the body uses the arguments in other directions than the head has.
        """
        named = dict(zip(self._results, results, strict=True))
        self._emitter.end("return", results, [self._flow.shares(name, value) for name, value in named.items()])
        # Equal updates are merged by now: the head may tell less of an alias than the body would allow.
        self.directions = tuple(
            replace(body, in_place=body.in_place and head.in_place)
            for body, head in zip(self._flow.end(named), self._head, strict=True)
        )
        body, head = ([replace(argument, written=None) for argument in side] for side in (self.directions, self._head))
        if body != head:
            raise GraphError(f"the directions of the head differ from those of the body: {head}, {body}")
        self._write("  }\n")


def check_aliases_differ(function: str, arguments: Iterable[Argument]) -> None:
    """Refuses two arguments that are to become the same result.

    Raises:
        GraphError: there are two.
    """
    taken: dict[str, str] = {}
    for argument in arguments:
        if argument.alias_result is None:
            continue
        other = taken.setdefault(argument.alias_result, argument.name)
        if other != argument.name:
            raise GraphError(
                f"graph {function!r}: arguments {other!r} and {argument.name!r} are both to become result "
                f"{argument.alias_result!r}: a result takes over one buffer: give each argument a result of its own"
            )


def alias_attribute(
    function: str, argument: Argument, results: Mapping[str, TensorSpec], in_place: Container[str]
) -> str:
    """Returns the attribute of an argument that a result takes over; empty if none does.

    Raises:
        GraphError: the function lacks the result, or has it with another spec.
    """
    wanted = argument.alias_result
    if wanted is None:
        return ""
    if wanted not in results:
        raise GraphError(
            f"graph {function!r}: argument {argument.name!r} is to become result {wanted!r}, which is not there: it "
            f"has {', '.join(results)}{near_names(wanted, results)}"
        )
    if results[wanted] != argument.spec:
        raise GraphError(
            f"graph {function!r}: argument {argument.name!r} ({argument.spec!r}) cannot become result {wanted!r} "
            f"({results[wanted]!r}): the specs must be equal"
        )
    if argument.name not in in_place:
        return ""
    return f" {{tf.aliasing_output = {list(results).index(wanted)} : i32}}"
