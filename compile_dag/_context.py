"""The recording context: ops are written to a tape, with the lines of the Python source that call them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any, Final, TypeVar

import lang_core
from compile_dag._graph_ops import PARAMETER, TAG
from compile_dag._node import Call, Node, Value
from compile_dag._recorder import Recorder, no_operand, recorder_of
from compile_dag._tape import Sink, Tape
from lang_core import (
    OPS,
    DType,
    EagerExecutionContext,
    ExecutionContext,
    Literal,
    Op,
    OpError,
    Parameter,
    RecordingError,
    TagSelection,
    Tensor,
    TensorSpec,
    as_array,
    checked_choices,
    nests_regions,
    tag_name,
)

# Frames of these folders are the machinery, their tests excepted; the first frame outside is the user's.
_MACHINERY: Final = tuple(path.rpartition("/")[0] + "/" for path in (lang_core.__file__ or "", __file__))


class SourceLines:
    """Finder of source lines, which remembers files and lines."""

    __slots__ = ("_is_machinery", "_lines")

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], str] = {}
        self._is_machinery: dict[str, bool] = {}

    def innermost(self) -> str:
        """Returns the innermost ``file:line`` of the Python stack outside the machinery."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            machinery = self._is_machinery.get(file)
            if machinery is None:
                machinery = file.startswith(_MACHINERY) and not file.endswith("_test.py")
                self._is_machinery[file] = machinery
            if not machinery:
                key = file, frame.f_lineno
                return self._lines.get(key) or self._lines.setdefault(key, f"{file}:{frame.f_lineno}")
            frame = frame.f_back
        return "unknown"


R = TypeVar("R")
T = TypeVar("T", bound=Tensor)


class GraphExecutionContext(ExecutionContext):
    """Records ops on a tape while a recording is open, and computes them otherwise.

    Recordings nest: the innermost one gets the ops and placeholders; each one around it that asked to
    (``include_nested``) gets them too. The ops inside the functions of a loop or branch are part of that op. A
    recording belongs to the thread or asyncio task that opened it. Elsewhere, and while it is paused, another context
    computes.

    Args:
        tags: selection of the tags to record; none if None.
        eager: context that computes, with the same module path and ``parameters_from``; NumPy's if None.

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
    >>> float(ctx.ops.exp(ctx.ops.constant(0.0)))
    1.0
    """

    def __init__(self, tags: TagSelection | None = None, eager: ExecutionContext | None = None) -> None:
        super().__init__()
        self._tags = tags
        self._eager = EagerExecutionContext() if eager is None else eager
        self._scope = self._eager._scope
        self._stretch_numbers = count()
        # By file, never by code object: those of equal functions in two files are equal.
        self._source = SourceLines()

        self.array_types = self._eager.array_types

    def admit(self, value: Any) -> Any:
        """Returns an array as a tensor of the context that computes; unchanged in a recording."""
        return value if self.isRecording else self._eager.admit(value)

    @property
    def isRecording(self) -> bool:
        """True while this thread or task has a recording open that is not paused."""
        return self._recorder() is not None

    def _recorder(self) -> Recorder | None:
        """Returns the recorder of the next op, or None."""
        recorder = recorder_of(self)
        return None if recorder is None or recorder.is_paused else recorder

    @checked_choices
    @contextmanager
    def recording(self, sink: Sink | None = None, include_nested: bool = False) -> Iterator[Tape]:
        """Opens a recording.

        Args:
            sink: receiver of the nodes instead of the tape.
            include_nested: True to record the ops of recordings inside this one here too.
        """
        recorder = recorder_of(self)
        tape = Tape(sink, include_nested, around=None if recorder is None else recorder.tape)
        recorder = recorder or Recorder(self, tape, self._stretch_numbers)
        with recorder.recorded_on(tape):
            yield tape

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pauses the innermost recording: see ``Tape.paused``.

        Raises:
            RecordingError: none is open.
        """
        recorder = self._open_recorder("paused()")
        with recorder.paused(recorder.tape):
            yield

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Marks the ops recorded inside as one unit of lowering; an empty name is a RecordingError."""
        if not name:
            raise RecordingError("block(''): a block needs a name, such as 'layers.3'")
        recorder = self._recorder()
        with self._eager.block(name) if recorder is None else recorder.block(name):
            yield

    def composite(
        self, name: str, body: Callable[..., R], inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()
    ) -> R:
        """Records the body's ops, and notes on the nodes which call they belong to."""
        recorder = self._recorder()
        body = self._body_of(name, body)
        if recorder is None:
            return body(*self.admit_all(inputs), *attributes)
        outer, stretch = recorder.call, recorder.stretch
        call = recorder.call = Call(name, inputs, attributes, outer)
        try:
            results = body(*inputs, *attributes)
        finally:
            recorder.call = outer
        call.results = results if isinstance(results, tuple) else (results,)  # pyright: ignore[reportAttributeAccessIssue]
        call.is_whole = recorder.stretch is stretch
        return results

    def tag(self, x: T, name: str, *, detail: bool = False) -> T:
        """Records that the tensor has this name, if the tag is selected, and returns x unchanged."""
        recorder = self._recorder()
        if recorder is None:
            return self._eager.tag(self._computed(TAG, (x,))[0], name, detail=detail)
        if self.shows(name, detail=detail):
            self._record(recorder, TAG, (self._check_operand(recorder, TAG, x),), (name,), TAG.infer_afresh)
        return x

    def shows(self, name: str, *, detail: bool = False) -> bool:
        """Returns whether the tag is one of those selected."""
        if self._recorder() is None:
            return self._eager.shows(name, detail=detail)
        return self._tags is not None and self._tags.selects(tag_name(self.module_path, name), detail)

    @contextmanager
    def watched(self) -> Iterator[list[Node]]:
        """Yields a list to which each node of the open recording is added; ``RecordingError`` if none is open."""
        with self._open_recorder("watched()").tape.watched() as nodes:
            yield nodes

    def _open_recorder(self, asked: str) -> Recorder:
        recorder = self._recorder()
        if recorder is None:
            raise RecordingError(f"{asked}: no recording is open: use `with ctx.recording() as tape:` or record(fn)")
        return recorder

    def apply(self, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...] = ()) -> tuple[Tensor, ...]:
        """Checks the op's contract and records it, or computes it; results have the shapes of its shape rule."""
        recorder = recorder_of(self)
        if recorder is None or recorder.is_paused:
            return self._eager.apply(op, self._computed(op, inputs), attributes)
        for operand in inputs:
            if type(operand) is not Value or operand.recording is not recorder.tape:
                self._check_operand(recorder, op, operand)
        scope = self._scope
        line = scope.source_line or self._source.innermost()
        return recorder.record(op, inputs, attributes, op.infer, scope.module_path, line)

    def _record(
        self,
        recorder: Recorder,
        op: Op,
        inputs: tuple[Value, ...],
        attributes: tuple[Any, ...],
        infer: Callable[..., Any],
    ) -> tuple[Value, ...]:
        scope = self._scope
        line = scope.source_line or self._source.innermost()
        return recorder.record(op, inputs, attributes, infer, scope.module_path, line)

    def _source_line(self) -> str:
        return self._scope.source_line or self._source.innermost()

    def _where(self) -> str:
        return f"(at {self.module_path or 'the root'}, {self._source_line()})"

    def _computed(self, op: Op, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the operands of an op that is computed; recorded values have nothing to compute with."""
        for operand in operands:
            if isinstance(operand, Value):
                raise no_operand(self, f"{op.name} {self._where()}", operand)
        return operands

    def _check_operand(self, recorder: Recorder, op: Op, operand: Any) -> Value:
        if isinstance(operand, Value) and recorder.has(operand.recording.owner()):
            return operand
        raise no_operand(self, f"{op.name} {self._where()}", operand)

    def constant(self, value: Any, dtype: DType | str | None = None) -> Tensor:
        """Freezes a value of any shape, exactly, into the graph; without a recording it computes."""
        if isinstance(value, Value):
            value.numpy()  # raises
        recorder = self._recorder()
        if recorder is None:
            return self._eager.constant(value, dtype)
        array = as_array(value.numpy() if isinstance(value, Tensor) else value, dtype)
        return self._record(recorder, OPS["constant"], (), (Literal(array),), OPS["constant"].infer_afresh)[0]

    def number(self, number: float, dtype: DType) -> Tensor:
        """Returns a rank-0 constant of a Python number."""
        return self._eager.number(number, dtype) if self._recorder() is None else self.constant(number, dtype)

    def placeholder(self, name: str, spec: TensorSpec) -> Tensor:
        """Adds an input of this shape and dtype to the recording; without one, returns the eager context's input."""
        recorder = self._recorder()
        if recorder is None:
            return self._eager.placeholder(name, spec)
        value = Value(spec, recorder.tape, "placeholder", self.module_path, self._source_line())
        for receiver in (*recorder.also, recorder.tape):
            receiver.add_input(name, value)
        return value

    def parameter(self, parameter: Parameter) -> Tensor:
        """Records that a weight is read, of its spec's shape, not its data; without a recording, reads it."""
        recorder = self._recorder()
        if recorder is None:
            return self._eager.parameter(parameter)
        given = self._given_for(parameter)
        if given is not None:
            return given
        return self._record(recorder, PARAMETER, (), (parameter.path, parameter.stored_spec), PARAMETER.infer_afresh)[0]

    def parameter_or(self, parameter: Parameter, values: Any) -> Tensor:
        """Records that a weight of the parameter's shape is read; else reads it, or gives the values without one."""
        return self._eager.parameter_or(parameter, values) if self._recorder() is None else self.parameter(parameter)

    @nests_regions
    def while_loop(
        self, cond: Callable[..., Tensor], body: Callable[..., Sequence[Tensor]], init: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Records the loop, its functions as graphs, or computes it; shapes, ``OpError`` as of ``ops.while_loop``."""
        op, recorder = OPS["while"], self._recorder()
        if recorder is None:
            return self._eager.while_loop(cond, body, self._computed(op, init))
        for value in init:
            self._check_operand(recorder, op, value)
        specs = [value.spec for value in init]
        regions = (
            self._region(recorder, op, "cond", lambda *values: (cond(*values),), specs),
            self._region(recorder, op, "body", body, specs),
        )
        return self._with_regions(recorder, op, init, (*regions, len(init)))

    @nests_regions
    def conditional(
        self,
        pred: Tensor,
        on_true: Callable[..., Sequence[Tensor]],
        on_false: Callable[..., Sequence[Tensor]],
        operands: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Records the branch, both functions as graphs, or computes it; shapes and ``OpError`` as of ``ops.cond``."""
        op, recorder = OPS["cond"], self._recorder()
        if recorder is None:
            self._computed(op, (pred, *operands))
            return self._eager.conditional(pred, on_true, on_false, operands)
        for value in (pred, *operands):
            self._check_operand(recorder, op, value)
        regions = tuple(
            self._region(recorder, op, name, lambda branch=branch: branch(*operands), [])
            for name, branch in (("on_true", on_true), ("on_false", on_false))
        )
        return self._with_regions(recorder, op, (pred,), regions)

    def _region(
        self,
        recorder: Recorder,
        op: Op,
        name: str,
        function: Callable[..., Sequence[Tensor]],
        specs: list[TensorSpec],
    ) -> Any:
        with recorder.recorded_on(Tape(is_region=True, around=recorder.tape)) as tape:
            inputs = [self.placeholder(f"{name}_{i}", spec) for i, spec in enumerate(specs)]
            results = function(*inputs)
            if not isinstance(results, Sequence):
                raise OpError(f"{op.name} {self._where()}: {name} returned {results!r}: return a sequence of tensors")
            values = [self._check_operand(recorder, op, value) for value in results]
            if not values:
                raise OpError(f"{op.name} {self._where()}: {name} returned nothing: an op has one result or more")
        return tape.to_region({f"{name}_result_{i}": value for i, value in enumerate(values)}, name)

    def _with_regions(
        self, recorder: Recorder, op: Op, inputs: tuple[Any, ...], attributes: tuple[Any, ...]
    ) -> tuple[Tensor, ...]:
        captured = {
            value.number: value for region in attributes if hasattr(region, "captures") for value in region.captures
        }
        operands = (*inputs, *captured.values())
        for operand in operands:
            self._check_operand(recorder, op, operand)
        return self._record(recorder, op, operands, attributes, op.infer_afresh)
