"""The recording context: ops are written to a tape."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeVar

from compile_dag._graph_ops import PARAMETER, TAG
from compile_dag._node import Call, Node, Stretch, Value
from compile_dag._source import SourceLines
from compile_dag._tape import Sink, Tape
from lang_core import (
    OPS,
    DType,
    ExecutionContext,
    Literal,
    Op,
    OpError,
    Parameter,
    RecordingError,
    TagSelection,
    Tensor,
    TensorSpec,
    TraceEscapeError,
    as_array,
    checked_choices,
    tag_name,
)

# Most values of a stretch, which is what a lowering keeps at a time: the part of a block that is longer is cut.
WINDOW: Final = 2048
_NOT_BEGUN: Final = -1

R = TypeVar("R")
T = TypeVar("T", bound=Tensor)


class GraphExecutionContext(ExecutionContext):
    """Records ops on a tape while a recording is open.

    Recordings nest. The innermost one gets the ops and placeholders; each one around it that asked to
    (``include_nested``) gets them too. However a recording is left, it is closed. What the functions of a loop
    or branch do is part of that op, and reaches no recording around it.

    Args:
        tags: selection of the tags to record; none where None.

    >>> from compile_dag import GraphExecutionContext
    >>> ctx = GraphExecutionContext()
    >>> with ctx.recording() as tape:
    ...     x = ctx.ops.placeholder("x", (2, 3), "f32")
    ...     y = ctx.ops.exp(x)
    >>> print(tape.to_compute_graph({"y": y}), end="")
    graph main(%x: f32[2,3]) {
      %1: f32[2,3] = exp(%x)
      return y=%1
    }
    """

    def __init__(self, tags: TagSelection | None = None) -> None:
        super().__init__()
        self._tags = tags
        self._tapes: list[Tape] = []
        self._tape: Tape | None = None
        self._also: tuple[Tape, ...] = ()
        self._stretch_numbers = count()
        self._stretch = self._stretch_of("")
        self._call: Call | None = None
        # By file, never by code object: those of equal functions in two files are equal.
        self._source = SourceLines()

    @property
    def isRecording(self) -> bool:
        """True while a recording is open."""
        return self._tape is not None

    @checked_choices
    @contextmanager
    def recording(self, sink: Sink | None = None, include_nested: bool = False) -> Iterator[Tape]:
        """Opens a recording.

        Args:
            sink: receiver of the nodes instead of the tape.
            include_nested: True to record the ops of recordings inside this one here too.
        """
        with self._recorded_on(Tape(sink, include_nested, around=self._tape)) as tape:
            yield tape

    @contextmanager
    def _recorded_on(self, tape: Tape) -> Iterator[Tape]:
        self._tapes.append(tape)
        self._settle()
        stretch, window_end, unseen = self._stretch, self._window_end, not self._also
        try:
            yield tape
        finally:
            self._close(tape)
            if unseen:  # for the tapes around, no block inside has interrupted theirs
                self._stretch, self._window_end = stretch, window_end

    def _close(self, tape: Tape) -> None:
        """Closes a recording, and before it those inside that a suspended generator still holds open."""
        while not tape.is_closed:
            self._tapes.pop().close(self._also[0] if self._also else None)
            self._settle()

    def _settle(self) -> None:
        """Determines who gets the next op: the innermost tape, and those around that asked for it."""
        self._tape = self._tapes[-1] if self._tapes else None
        also: list[Tape] = []
        for inner, outer in zip(self._tapes[:0:-1], self._tapes[-2::-1], strict=True):
            if inner.is_region:
                break
            if outer.include_nested:
                also.append(outer)
        self._also = tuple(also)

    def _stretch_of(self, block: str) -> Stretch:
        """Returns the next stretch, a part of this block."""
        self._window_end = _NOT_BEGUN
        return Stretch(block, next(self._stretch_numbers))

    def _begin_window(self, tape: Tape, number: int) -> None:
        """Begins a stretch's window with the value of this number; a stretch that has filled one ends before it."""
        if tape.is_region:
            return  # a region is part of its op
        if self._window_end != _NOT_BEGUN:
            self._stretch = self._stretch_of(self._stretch.block)
        self._window_end = number + WINDOW

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Marks the ops recorded inside as one unit of lowering; the name must not be empty."""
        if not name:
            raise RecordingError("block(''): a block needs a name, such as 'layers.3'")
        before, self._stretch = self._stretch.block, self._stretch_of(name)
        opened: list[Sink] = []
        try:
            for tape in (self._tape, *self._also):
                if tape is not None and tape.sink is not None:
                    tape.sink.open_block(name)
                    opened.append(tape.sink)
            yield
        finally:
            self._stretch = self._stretch_of(before)  # what follows is another stretch of the block around
            for sink in opened:
                sink.close_block(name)

    def composite(
        self, name: str, body: Callable[..., R], inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()
    ) -> R:
        """Records the body's ops, and notes on the nodes which call they belong to."""
        outer, stretch = self._call, self._stretch
        body = self._body_of(name, body)
        call = self._call = Call(name, inputs, attributes, outer)
        try:
            results = body(*inputs, *attributes)
        finally:
            self._call = outer
        call.results = results if isinstance(results, tuple) else (results,)  # pyright: ignore[reportAttributeAccessIssue]
        call.is_whole = self._stretch is stretch
        return results

    def tag(self, x: T, name: str, *, detail: bool = False) -> T:
        """Records that the tensor has this name, if the tag is selected, and returns x unchanged."""
        if self.shows(name, detail=detail):
            self._record(TAG, (self._check_operand(TAG, x),), (name,), TAG.infer_afresh)
        return x

    def shows(self, name: str, *, detail: bool = False) -> bool:
        """Returns whether the tag is one of those selected."""
        return self._tags is not None and self._tags.selects(tag_name(self.module_path, name), detail)

    @contextmanager
    def watched(self) -> Iterator[list[Node]]:
        """Yields a list to which each node of the present recording is added besides."""
        tape = self._open_tape("watched()")
        with tape.watched() as nodes:
            yield nodes

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Checks the op's contract and records it."""
        for operand in inputs:
            if type(operand) is not Value or operand.recording is not self._tape:
                self._check_operand(op, operand)
        return self._record(op, inputs, attributes, op.infer)

    def _record(
        self, op: Op, inputs: tuple[Value, ...], attributes: tuple[Any, ...], infer: Callable[..., Any]
    ) -> tuple[Value, ...]:
        tape = self._open_tape(op.name)
        line = self.source_line or self._source.innermost()
        try:
            specs = infer(tuple([value.spec for value in inputs]), attributes)
        except OpError as error:
            raise OpError(f"{error} (at {self.module_path or 'the root'}, {line})") from None
        results = tuple([Value(spec, tape, op.name, self.module_path, line) for spec in specs])
        if results[0].number >= self._window_end:
            self._begin_window(tape, results[0].number)
        node = Node(op, inputs, attributes, results, self._stretch, self._call)
        tape.add(node)
        for other in self._also:
            other.add(node)
        return results

    def _open_tape(self, asked: str) -> Tape:
        if self._tape is None:
            raise RecordingError(
                f"{asked}: no recording is open: use `with ctx.recording() as tape:` or record(fn, ...)"
            )
        return self._tape

    def _check_operand(self, op: Op, operand: Any) -> Value:
        self._open_tape(op.name)
        where = f"(at {self.module_path or 'the root'}, {(self.source_line or self._source.innermost())})"
        if isinstance(operand, Value):
            owner = operand.recording.owner()
            if owner not in self._tapes:
                whose = "that has ended" if owner.is_closed else "of another context"
                raise RecordingError(
                    f"{op.name} {where}: {operand!r} belongs to a recording {whose}: record what made it in this "
                    f"recording, or open the one around both with include_nested=True"
                )
            return operand
        if isinstance(operand, Tensor):
            raise TraceEscapeError(
                f"{op.name} {where}: a tensor with data, {operand.spec!r}, reached a recorded op: record what made it, "
                f"or freeze it with ctx.ops.constant"
            )
        given = f"an array of {operand.dtype}{list(operand.shape)}" if hasattr(operand, "shape") else repr(operand)
        raise TraceEscapeError(
            f"{op.name} {where}: {given}, computed outside the recording, reached a recorded op: make it an input "
            f"or a Parameter, or freeze it with ctx.ops.constant"
        )

    def constant(self, value: Any, dtype: DType | str | None = None) -> Tensor:
        """Freezes a value, exactly, into the graph."""
        if isinstance(value, Value):
            value.numpy()  # raises
        array = as_array(value.numpy() if isinstance(value, Tensor) else value, dtype)
        op = OPS["constant"]
        return self._record(op, (), (Literal(array),), op.infer_afresh)[0]

    def placeholder(self, name: str, spec: TensorSpec) -> Tensor:
        """Adds an input to the recording."""
        tape = self._open_tape(f"placeholder {name!r}")
        value = Value(spec, tape, "placeholder", self.module_path, (self.source_line or self._source.innermost()))
        for receiver in (*self._also, tape):
            receiver.add_input(name, value)
        return value

    def parameter(self, parameter: Parameter) -> Tensor:
        """Records that a weight is read, without reading its data."""
        given = self._given_for(parameter)
        if given is not None:
            return given
        return self._record(PARAMETER, (), (parameter.path, parameter.stored_spec), PARAMETER.infer_afresh)[0]

    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Records the loop; its functions become graphs."""
        op = OPS["while"]
        for value in init:
            self._check_operand(op, value)
        specs = [value.spec for value in init]
        regions = (
            self._region(op, "cond", lambda *values: (cond(*values),), specs),
            self._region(op, "body", body, specs),
        )
        return self._with_regions(op, init, (*regions, len(init)))

    def conditional(
        self,
        pred: Tensor,
        on_true: Callable[..., Sequence[Tensor]],
        on_false: Callable[..., Sequence[Tensor]],
        operands: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Records the branch; both functions become graphs, with the operands as captures."""
        op = OPS["cond"]
        for value in (pred, *operands):
            self._check_operand(op, value)
        regions = tuple(
            self._region(op, name, lambda branch=branch: branch(*operands), [])
            for name, branch in (("on_true", on_true), ("on_false", on_false))
        )
        return self._with_regions(op, (pred,), regions)

    def _region(self, op: Op, name: str, function: Callable[..., Sequence[Tensor]], specs: list[TensorSpec]) -> Any:
        with self._recorded_on(Tape(is_region=True, around=self._tape)) as tape:
            inputs = [self.placeholder(f"{name}_{i}", spec) for i, spec in enumerate(specs)]
            results = function(*inputs)
            if not isinstance(results, Sequence):
                where = f"(at {self.module_path or 'the root'}, {(self.source_line or self._source.innermost())})"
                raise OpError(f"{op.name} {where}: {name} returned {results!r}: return a sequence of tensors")
            values = [self._check_operand(op, value) for value in results]
            if not values:
                where = f"(at {self.module_path or 'the root'}, {(self.source_line or self._source.innermost())})"
                raise OpError(f"{op.name} {where}: {name} returned nothing: an op has one result or more")
        return tape.to_region({f"{name}_result_{i}": value for i, value in enumerate(values)}, name)

    def _with_regions(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...]) -> tuple[Tensor, ...]:
        captured = {
            value.number: value for region in attributes if hasattr(region, "captures") for value in region.captures
        }
        operands = (*inputs, *captured.values())
        for operand in operands:
            self._check_operand(op, operand)
        return self._record(op, operands, attributes, op.infer_afresh)
