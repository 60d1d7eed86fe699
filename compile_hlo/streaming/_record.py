"""Recording: each stretch is taken apart when it ends, and its nodes go."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from compile_dag import Node, Stretch, Value, line_in_package, verify_stretch
from compile_hlo.streaming._form import read_stretch
from compile_hlo.streaming._journal import DiskJournal, SegmentJournal
from compile_hlo.streaming._templates import Templates


@dataclass(frozen=True, slots=True)
class LargestStretch:
    """Stretch with the most nodes, which decides how much memory a lowering takes.

    Attributes:
        nodes: number of its nodes.
        block: name of its block; empty outside of blocks.
        path: module path of its first op.
        line: Python source line of its first op, ``package/file.py:line``.
    """

    nodes: int = 0
    block: str = ""
    path: str = ""
    line: str = ""


class RecordedFunction:
    """Function as it was recorded: a list of stretches, each an occurrence of a template.

    As a sink it takes the nodes of a recording. Use it in a ``with`` block, which deletes its files.

    Args:
        streaming: True to keep the recording on disk, else in memory.

    Attributes:
        name: name of the function.
        inputs: arguments by name.
        outputs: results by name.
        nodes: number of nodes.
        largest: stretch with the most nodes.
        templates: distinct stretches.
        occurrences: stretches in order, as records of ``Occurrence``.
    """

    def __init__(self, streaming: bool) -> None:
        self.name = "main"
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.nodes = 0
        self.largest = LargestStretch()
        self.templates = Templates(streaming)
        self.occurrences: SegmentJournal = DiskJournal() if streaming else []
        self._nodes: list[Node] = []
        self._stretch: Stretch | None = None

    def begin(self, name: str, inputs: Mapping[str, Value]) -> None:
        """Takes the arguments."""
        self.name, self.inputs = name, dict(inputs)

    def node(self, node: Node) -> None:
        """Takes a recorded op."""
        if node.stretch is not self._stretch:
            self._finish()
            self._stretch = node.stretch
        self._nodes.append(node)

    def open_block(self, name: str) -> None:
        """Ends the stretch around the block."""
        del name
        self._finish()

    def close_block(self, name: str) -> None:
        """Ends the block's stretch."""
        del name
        self._finish()

    def end(self, outputs: Mapping[str, Value]) -> Self:
        """Takes the results."""
        self._finish()
        self.outputs = dict(outputs)
        self.largest = replace(self.largest, line=line_in_package(self.largest.line))
        return self

    def _finish(self) -> None:
        """Verifies a stretch that is new, and forgets the nodes."""
        if not self._nodes:
            return
        nodes, self._nodes = self._nodes, []
        stretch = read_stretch(nodes, self.templates.ops)
        number, is_new = self.templates.number_of(stretch)
        if is_new:
            verify_stretch(self.name, nodes)
        self.occurrences.append(stretch.occurrence._replace(template=number))
        self.nodes += len(nodes)
        if len(nodes) > self.largest.nodes:
            first = nodes[0]
            self.largest = LargestStretch(len(nodes), first.block, first.path, first.line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.templates.close()
        if isinstance(self.occurrences, DiskJournal):
            self.occurrences.close()
