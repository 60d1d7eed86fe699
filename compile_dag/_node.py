"""Nodes and values of a recording."""

from itertools import count
from typing import Any, Final, NamedTuple, NoReturn, Self

from lang_core import Op, Tensor, TensorSpec, TraceEscapeError


class Recording:
    """One recording as its values know it: the source of their numbers, and whether it is still open.

    Args:
        around: recording inside which this one is opened; the two share one sequence of numbers, since ops inside may
            use values from around.

    Attributes:
        is_closed: True if the recording has ended.
        next_number: returns the number of the next value: 0, 1, 2, ... in recording order.
    """

    def __init__(self, around: "Recording | None" = None) -> None:
        self._numbers = count() if around is None else around._numbers
        self.next_number = self._numbers.__next__
        self.is_closed = False
        self._heir: Self | None = None

    def close(self, heir: Self | None) -> None:
        """Ends the recording. The values live on in ``heir``, a recording of the same ops."""
        self.is_closed = True
        self._heir = heir

    def owner(self) -> Self:
        """Returns the open recording in which this one's values can be used; itself if there is none."""
        owner = self
        while owner.is_closed and owner._heir is not None:
            owner = owner._heir
        return owner


# Ops that answer what Python asks a value for.
_ANSWERS: Final = {
    "bool()": " (select, cond, while_loop)",
    "float()": " (cast)",
    "int()": " (cast)",
    "an index": " (take, dynamic_slice, fori_loop)",
}


class Value(Tensor):
    """Result of a recorded op, or an input. It has a spec and an origin, but not data.

    It does not lead to the node that made it: a value that crosses blocks must not keep a graph alive.

    Attributes:
        number: position in recording order, unique among all values that one graph can use. A second recording of
            the same ops gives the same numbers.
        spec: shape and dtype.
        recording: recording that the value belongs to.
        op_name: name of the op that made it; ``placeholder`` for an input.
        path: path of the module that ran.
        line: Python source line, as ``file:line``.
        mark: note of a sink about the value; None at first. It goes with the value.
    """

    __slots__ = ("line", "mark", "number", "op_name", "path", "recording")

    def __init__(
        self, spec: TensorSpec, recording: Recording, op_name: str, path: str, line: str, number: int | None = None
    ) -> None:
        self.number = recording.next_number() if number is None else number
        self.spec = spec
        self.recording = recording
        self.op_name = op_name
        self.path = path
        self.line = line
        self.mark: Any = None

    @property
    def origin(self) -> str:
        """Text that says which op made the value, in which module, at which source line."""
        return f"{self.op_name} (at {self.path or 'the root'}, {self.line})"

    def _escape(self, asked: str) -> NoReturn:
        raise TraceEscapeError(
            f"{asked} was asked of {self.spec!r}, the recorded result of {self.origin}: a recorded value has no data. "
            f"Compute with ctx.ops{_ANSWERS.get(asked, '')}, or ask ctx.isRecording before a path that needs data"
        )

    def _as_operand(self) -> tuple[str, str]:
        return f"a tensor ({self.spec!r}, the recorded result of {self.origin})", ""

    def _item(self, asked: str) -> NoReturn:
        self._escape(asked)

    def __repr__(self) -> str:
        return f"Value({self.spec!r} of {self.origin})"


class Stretch(NamedTuple):
    """Uninterrupted part of a block, which is lowered as a unit.

    A block that holds another one is cut by it into two, and one that is longer than a window into several.

    Attributes:
        block: name of the innermost block; empty outside of blocks.
        number: number of the stretch, unique within its context.
    """

    block: str
    number: int


class Call:
    """One call of a composite: ops that were recorded together under a name.

    Attributes:
        name: name of the composite.
        inputs: values, None, or whatever else it was given.
        attributes: arguments that are known without data.
        results: values that it returned; empty until then.
        outer: call of the composite that called it.
        is_whole: True once it has returned, if all of it was recorded in one stretch.
    """

    __slots__ = ("attributes", "inputs", "is_whole", "name", "outer", "results")

    def __init__(self, name: str, inputs: tuple[Any, ...], attributes: tuple[Any, ...], outer: "Call | None") -> None:
        self.name: Final = name
        self.inputs: Final = inputs
        self.attributes: Final = attributes
        self.results: tuple[Value, ...] = ()
        self.outer: Final = outer
        self.is_whole = False


class Node:
    """One recorded op.

    Attributes:
        op: the op itself.
        inputs: operands. For ops with regions, the values that the regions capture come last.
        attributes: attributes in the order of ``op.attributes``.
        results: results; at least one.
        stretch: part of a block that it was recorded in.
        call: innermost call of a composite that it was recorded in. A pass that replaces the operands of the nodes of a
            call renews the call too, or leaves it out.
    """

    __slots__ = ("attributes", "call", "inputs", "op", "results", "stretch")

    def __init__(
        self,
        op: Op,
        inputs: tuple[Value, ...],
        attributes: tuple[Any, ...],
        results: tuple[Value, ...],
        stretch: Stretch,
        call: Call | None = None,
    ) -> None:
        self.op: Final = op
        self.inputs: Final = inputs
        self.attributes: Final = attributes
        self.results: Final = results
        self.stretch: Final = stretch
        self.call: Final = call

    @property
    def block(self) -> str:
        """Name of the innermost block that it was recorded in; empty outside of blocks."""
        return self.stretch.block

    @property
    def path(self) -> str:
        """Path of the module that ran."""
        return self.results[0].path if self.results else ""

    @property
    def line(self) -> str:
        """Python source line, as ``file:line``."""
        return self.results[0].line if self.results else "unknown"

    def attribute(self, name: str) -> Any:
        """Returns the value of one attribute."""
        return self.attributes[self.op.attributes.index(name)]

    def __repr__(self) -> str:
        return f"<node {self.op.name} at {self.path or 'the root'}, {self.line}>"
