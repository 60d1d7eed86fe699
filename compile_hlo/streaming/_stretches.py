"""A recording cut into stretches: what lies between two block boundaries is lowered as a unit."""

from abc import ABC, abstractmethod

from compile_dag import Node, Stretch


class StretchSink(ABC):
    """Collects the nodes of a stretch and hands them on when it ends. Empty stretches do not count.

    Attributes:
        number: of the present stretch, from 0. The same recording gives the same numbers.
        serial: how many results the present stretch has so far.
    """

    def __init__(self) -> None:
        self.number = 0
        self.serial = 0
        self._nodes: list[Node] = []
        self._stretch: Stretch | None = None

    def node(self, node: Node) -> None:
        """An op was recorded."""
        if node.stretch != self._stretch:
            self._finish()
            self._stretch = node.stretch
        self._nodes.append(node)
        self._number_results(node)

    def open_block(self, name: str) -> None:
        """The stretch around the block ends."""
        del name
        self._finish()

    def close_block(self, name: str) -> None:
        """The block's stretch ends."""
        del name
        self._finish()

    def _finish(self) -> None:
        if self._nodes:
            nodes, self._nodes = self._nodes, []
            self.stretch(nodes)
            self.number += 1
            self.serial = 0

    @abstractmethod
    def _number_results(self, node: Node) -> None:
        """Marks the node's results so that they are known again in the other pass."""

    @abstractmethod
    def stretch(self, nodes: list[Node]) -> None:
        """A stretch is complete."""
