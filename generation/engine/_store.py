"""Memory of the entries of prefixes: a tree of blocks of tokens, under a budget of bytes."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import numpy as np

_OVERHEAD: Final = 1024  # bytes of a block's own objects, about


class Block:
    """Tokens that follow a parent's tokens, and their entries.

    Attributes:
        start: position of the first token.
        stop: position behind the last one.
        tokens: i64 [stop - start].
        arrays: results of ``read_row``.
        nbytes: bytes of all this.
        children: blocks that follow, by the bytes of their tokens.
    """

    def __init__(self, parent: "Block | None", tokens: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
        """Makes a block without children; a root without a parent."""
        self.start: Final = parent.stop if parent else 0
        self.stop: Final = self.start + len(tokens)
        self.tokens: Final = tokens
        self.arrays: Final = arrays
        self.nbytes: Final = tokens.nbytes + sum(array.nbytes for array in arrays) + _OVERHEAD
        self.children: Final[dict[bytes, Block]] = {}
        self.parent: Final = parent

    def path(self) -> "list[Block]":
        """Returns the blocks from the one after the root to this one."""
        blocks, block = [], self
        while block.parent:
            blocks.append(block)
            block = block.parent
        return blocks[::-1]


class BlockStore:
    """Trees of blocks, one for each salt. The blocks of the oldest use leave first, a parent never before its children.

    Content is compared, not a hash of it, so two prefixes are never taken for one another.

    Attributes:
        roots: the empty prefix of each salt; one stays if its blocks have left.
        budget: bytes that all blocks may take.
        nbytes: bytes that they take.
    """

    def __init__(self, budget: int) -> None:
        """Begins empty."""
        self.roots: Final[dict[str, Block]] = {}
        self.budget: Final = budget
        self.nbytes = 0
        # Oldest use first. Every use of a block uses its ancestors after it: the first one has no children.
        self._order: Final[OrderedDict[Block, None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def root(self, salt: str) -> Block:
        """Returns the empty prefix of a salt; other salts do not reach its blocks."""
        return self.roots.setdefault(salt, _root())

    def deepest(self, salt: str, tokens: np.ndarray, stops: Collection[int] | None = None) -> Block:
        """Returns the block that ends the longest path of tokens that is a prefix of ``tokens`` i64 [n].

        Args:
            salt: salt of the blocks.
            tokens: tokens.
            stops: positions at which blocks may stop; None for any.
        """
        best = self.root(salt)
        branches = [best]
        while branches:
            block = branches.pop()
            best = block if block.stop > best.stop else best
            branches += self.children(block, tokens, stops)
        return best

    def children(self, block: Block, tokens: np.ndarray, stops: Collection[int] | None = None) -> list[Block]:
        """Returns the children of a block with tokens that continue like ``tokens`` i64 [n] and stop at ``stops``."""
        rest = tokens[block.stop :]
        stops = {child.stop for child in block.children.values()} if stops is None else stops
        keys = [rest[: at - block.stop].tobytes() for at in stops if block.stop < at <= len(tokens)]
        return [block.children[key] for key in keys if key in block.children]

    def nearest(self, block: Block, tokens: np.ndarray) -> tuple[Block, int] | None:
        """Returns the child with the most first tokens in common with those behind a block, and their number."""
        rest = tokens[block.stop :]
        alike = [child for child in block.children.values() if len(rest) and child.tokens[0] == rest[0]]
        lengths = ((child, common(child.tokens, rest)) for child in alike)
        return max(lengths, key=lambda pair: pair[1], default=None)

    def use(self, block: Block) -> None:
        """Notes that a block and its ancestors are of use."""
        while block.parent:
            self._order.move_to_end(block)
            block = block.parent

    def holds(self, block: Block) -> bool:
        """Returns whether a block is in the tree."""
        return block in self._order or any(block is root for root in self.roots.values())

    def add(self, parent: Block, tokens: np.ndarray, read: Callable[[], Sequence[np.ndarray]]) -> Block | None:
        """Adds a block, and removes others to make room for it.

        Args:
            parent: block of this tree.
            tokens: i64 [n] that follow the parent's.
            read: returns the arrays.

        Returns:
            The block; None if it does not fit beside its ancestors.
        """
        if self.budget == 0:
            return None
        block = Block(parent, tokens.copy(), [_owned(array) for array in read()])
        self.use(parent)
        ancestors = sum(ancestor.nbytes for ancestor in parent.path())
        if ancestors + block.nbytes > self.budget:
            return None
        while self.nbytes + block.nbytes > self.budget:
            self._remove_oldest()
        parent.children[block.tokens.tobytes()] = block
        self._order[block] = None
        self.nbytes += block.nbytes
        self.use(block)
        return block

    def blocks(self) -> Iterator[tuple[str, Block]]:
        """Yields the salt of every block and the block: parents before their children, else the oldest use first."""
        salts = {id(root): salt for salt, root in self.roots.items()}
        done = set[int]()
        for last in self._order:
            path = last.path()
            root = path[0].parent
            assert root
            for block in path:
                if id(block) not in done:
                    done.add(id(block))
                    yield salts[id(root)], block

    def clear(self) -> None:
        """Removes all blocks."""
        self.roots.clear()
        self._order.clear()
        self.nbytes = 0

    def _remove_oldest(self) -> None:
        block, _ = self._order.popitem(last=False)
        assert block.parent
        del block.parent.children[block.tokens.tobytes()]
        self.nbytes -= block.nbytes


def common(a: np.ndarray, b: np.ndarray) -> int:
    """Returns how many tokens two arrays i64 have in common at their beginnings."""
    count = min(len(a), len(b))
    different = np.flatnonzero(a[:count] != b[:count])
    return int(different[0]) if different.size else count


def _root() -> Block:
    return Block(None, np.zeros(0, np.int64), ())


def _owned(array: np.ndarray) -> np.ndarray:
    """Returns the array, or a copy of one that keeps more memory than its own."""
    return array if array.base is None else array.copy()
