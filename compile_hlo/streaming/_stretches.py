"""A recording cut into stretches: what lies between two block boundaries is lowered as a unit."""

from abc import ABC, abstractmethod

from compile_dag import Node, Stretch


class StretchSink(ABC):
    """Collects the nodes of a stretch and hands them on when it ends. Empty stretches do not count.

    Attributes:
        index: position of the present stretch among those that have nodes. The same recording gives the same ones.
    """

    def __init__(self) -> None:
        self.index = 0
        self._nodes: list[Node] = []
        self._stretch: Stretch | None = None

    def node(self, node: Node) -> None:
        """Takes a recorded op."""
        if node.stretch != self._stretch:
            self._finish()
            self._stretch = node.stretch
        self._nodes.append(node)
        self._recorded(node)

    def open_block(self, name: str) -> None:
        """Ends the stretch around the block."""
        del name
        self._finish()

    def close_block(self, name: str) -> None:
        """Ends the block's stretch."""
        del name
        self._finish()

    def _finish(self) -> None:
        if self._nodes:
            nodes, self._nodes = self._nodes, []
            self.stretch(nodes)
            self.index += 1

    @abstractmethod
    def _recorded(self, node: Node) -> None:
        """Takes a node of the present stretch at once, before the stretch ends."""

    @abstractmethod
    def stretch(self, nodes: list[Node]) -> None:
        """Takes a stretch that is complete."""
