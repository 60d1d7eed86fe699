"""Open recordings, each of the thread or asyncio task that opened it."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from types import FrameType
from typing import Any, Final

from compile_dag._node import Call, Node, Stretch, Value
from compile_dag._tape import Sink, Tape
from lang_core import (
    ExecutionContext,
    Op,
    OpError,
    RecordingError,
    TapelineError,
    Tensor,
    TraceEscapeError,
    operand_advice,
)

# Most values of a stretch, which is what a lowering keeps at a time: the part of a block that is longer is cut.
WINDOW: Final = 2048
_NOT_BEGUN: Final = -1
# Files whose frames open a recording for somebody else.
_FOLDER: Final = __file__.rpartition("/")[0]
_OWN: Final = (contextlib.__file__, *(f"{_FOLDER}/{name}.py" for name in ("_recorder", "_context", "_tape")))

_OPEN: Final[ContextVar["Recorder | None"]] = ContextVar("open_recordings", default=None)


class _Level:
    """Recording, or a pause of those around it, that is open.

    Attributes:
        tape: recording; None for a pause.
        frame: frame of the ``with`` statement that opened it.
    """

    __slots__ = ("_around", "frame", "tape")

    def __init__(self, tape: Tape | None, frame: FrameType | None, around: "_Level | None") -> None:
        self.tape, self.frame, self._around = tape, frame, around

    def is_inside(self, other: "_Level") -> bool:
        """Returns whether this level was opened inside another one, or is that one."""
        level: _Level | None = self
        while level is not None and level is not other:
            level = level._around
        return level is other


def _heirs(tapes: Sequence[Tape | None]) -> tuple[Tape, ...]:
    """Returns the recordings around the last one that get its ops too."""
    heirs: list[Tape] = []
    for inner, outer in zip(tapes[:0:-1], tapes[-2::-1], strict=True):
        if inner is None or outer is None or inner.is_region:
            break
        if outer.include_nested:
            heirs.append(outer)
    return tuple(heirs)


def _caller() -> FrameType | None:
    """Returns the frame that runs a ``with`` statement, outside of this package and of ``contextlib``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Returns a frame and those that called it."""
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


class Recorder:
    """Recordings of one context that one thread or asyncio task has open, from the outermost to the innermost.

    Threads and tasks that are started inside a recording inherit the variable that leads here, and not the recording:
    the order of a tape with two writers would be undefined.

    Attributes:
        ctx: context of the recordings.
        tape: innermost recording, which gets the next op.
        also: recordings around that get it too.
        is_paused: True if ops compute instead.
        call: innermost call of a composite.
    """

    def __init__(self, ctx: ExecutionContext, tape: Tape, stretch_numbers: Iterator[int]) -> None:
        self.ctx: Final = ctx
        self.tape = tape
        self.also: tuple[Tape, ...] = ()
        self.is_paused = False
        self.call: Call | None = None
        self._levels: list[_Level] = []  # from the outermost to the innermost
        self._stretch_numbers = stretch_numbers
        self._window_end = _NOT_BEGUN
        self._stretch = self._stretch_of("")
        self._thread: Final = get_ident()
        self._task: Final = _current_task()
        self._around = _innermost(_OPEN.get(), lambda recorder: recorder.is_open)

    @property
    def is_open(self) -> bool:
        """True until the outermost recording is closed."""
        return bool(self._levels)

    @property
    def stretch(self) -> Stretch:
        """Part of a block that the next op belongs to."""
        return self._stretch

    def has(self, tape: Any) -> bool:
        """Returns whether a tape is one of these."""
        return any(level.tape is tape for level in self._levels)

    def serves(self, ctx: ExecutionContext) -> bool:
        """Returns whether these are open recordings of a context, opened by whoever asks."""
        return (
            self.ctx is ctx
            and bool(self._levels)
            and self._thread == get_ident()
            and (self._task is None or self._task is _current_task())
        )

    @contextmanager
    def recorded_on(self, tape: Tape) -> Iterator[Tape]:
        """Opens a recording inside those that are open."""
        if not self._levels:
            _OPEN.set(self)
        tape.recorder = self
        level = self._enter(tape)
        stretch, window_end, unseen = self._stretch, self._window_end, not self.also
        try:
            yield tape
        finally:
            self._leave(level)
            if unseen:  # for the tapes around, no block inside has interrupted theirs
                self._stretch, self._window_end = stretch, window_end

    def _enter(self, tape: Tape | None) -> "_Level":
        """Adds a level inside of the innermost level with a running ``with`` statement.

        The innermost level may be held open by a suspended generator: levels opened outside the generator are not
        inside of that level, and stay open when the generator ends.
        """
        frame = _caller()
        around = self._levels[-1] if self._levels else None
        if around is not None and (tape is None or not tape.is_region):
            running = _frames(frame)
            around = next((level for level in reversed(self._levels) if level.frame in running), None)
        level = _Level(tape, frame, around)
        self._levels.append(level)
        self._settle()
        return level

    def _leave(self, level: "_Level") -> None:
        """Closes a level, and before it those inside that a suspended generator still holds open."""
        for inner in [other for other in self._levels[::-1] if other.is_inside(level)]:
            self._close(inner)
        if not self._levels and _OPEN.get() is self:
            _OPEN.set(_innermost(self._around, lambda recorder: recorder.is_open))

    def _close(self, level: "_Level") -> None:
        place = self._levels.index(level)
        heirs = _heirs([other.tape for other in self._levels[: place + 1]])
        del self._levels[place]
        if level.tape is not None:
            level.tape.close(heirs[0] if heirs else None)
            level.tape.recorder = None
        self._settle()

    def _settle(self) -> None:
        """Determines who gets the next op: the innermost tape, and those around that asked for it."""
        tapes = [level.tape for level in self._levels]
        self.is_paused = bool(tapes) and tapes[-1] is None
        self.tape = next((tape for tape in reversed(tapes) if tape is not None), self.tape)
        self.also = _heirs(tapes)

    @contextmanager
    def paused(self, tape: Tape) -> Iterator[None]:
        """Pauses a recording; the only recordings open inside may be regions of its ops.

        Raises:
            RecordingError: it is closed, another thread's or task's, or has another recording open inside.
        """
        if not self.serves(self.ctx) or not self.has(tape):
            raise RecordingError(
                "paused(): the recording is not open in this thread or task: pause it inside its `with` statement"
            )
        tapes = [level.tape for level in self._levels]
        inside = tapes[tapes.index(tape) + 1 :]
        if any(inner is not None and not inner.is_region for inner in inside):
            raise RecordingError("paused(): another recording is open inside: pause that one, or close it first")
        level = self._enter(None)
        try:
            yield
        finally:
            self._leave(level)

    def _stretch_of(self, block: str) -> Stretch:
        """Returns the next stretch, a part of this block."""
        self._window_end = _NOT_BEGUN
        return Stretch(block, next(self._stretch_numbers))

    def _begin_window(self, number: int) -> None:
        """Begins a stretch's window with the value of this number; a stretch that has filled one ends before it."""
        if self.tape.is_region:
            return  # a region is part of its op
        if self._window_end != _NOT_BEGUN:
            self._stretch = self._stretch_of(self._stretch.block)
        self._window_end = number + WINDOW

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Marks the ops recorded inside as one unit of lowering."""
        before, self._stretch = self._stretch.block, self._stretch_of(name)
        opened: list[Sink] = []
        try:
            for tape in (self.tape, *self.also):
                if tape.sink is not None:
                    tape.sink.open_block(name)
                    opened.append(tape.sink)
            yield
        finally:
            self._stretch = self._stretch_of(before)  # what follows is another stretch of the block around
            for sink in opened:
                sink.close_block(name)

    def record(
        self,
        op: Op,
        inputs: tuple[Value, ...],
        attributes: tuple[Any, ...],
        infer: Callable[..., Any],
        path: str,
        line: str,
    ) -> tuple[Value, ...]:
        """Records one op, of checked operands, at a module's path and a source line."""
        tape = self.tape
        try:
            specs = infer(tuple([value.spec for value in inputs]), attributes)
        except OpError as error:
            raise OpError(f"{error} (at {path or 'the root'}, {line})") from None
        if len(specs) == 1:  # most ops, in a third of the time of a list
            results = (Value(specs[0], tape, op.name, path, line),)
        else:
            results = tuple([Value(spec, tape, op.name, path, line) for spec in specs])
        if results[0].number >= self._window_end:
            self._begin_window(results[0].number)
        node = Node(op, inputs, attributes, results, self._stretch, self.call)
        tape.add(node)
        for other in self.also:
            other.add(node)
        return results


def recorder_of(ctx: ExecutionContext) -> Recorder | None:
    """Returns the recordings of a context that this thread or task has open; None if there are none."""
    recorder = _OPEN.get()
    if recorder is None:
        return None
    # The common case, without a call: this is asked for each op.
    if recorder.ctx is ctx and recorder._thread == get_ident() and recorder._task is None and recorder._levels:
        return recorder
    return _innermost(recorder, lambda other: other.serves(ctx))


def no_operand(ctx: ExecutionContext, where: str, operand: Any) -> TapelineError:
    """Returns the error of an operand that an op cannot have: another recording's value, or data in a recording.

    Args:
        ctx: context of the op.
        where: op, module path and source line.
        operand: the argument.
    """
    if isinstance(operand, Value):
        whose, advice = _owner_of(ctx, operand)
        return RecordingError(f"{where}: {operand!r} belongs to a recording {whose}: {advice}")
    if isinstance(operand, Tensor):
        return TraceEscapeError(
            f"{where}: a tensor with data, {operand.spec!r}, reached a recorded op: record its computation, or freeze "
            f"it with ctx.ops.constant"
        )
    advice = operand_advice(operand)
    if advice:
        return OpError(f"{where}: {advice}")
    given = f"an array of {operand.dtype}{list(operand.shape)}" if hasattr(operand, "shape") else repr(operand)
    return TraceEscapeError(
        f"{where}: {given}, computed outside the recording, reached a recorded op: make it an input or a Parameter, "
        f"or freeze it with ctx.ops.constant"
    )


def _owner_of(ctx: ExecutionContext, value: Value) -> tuple[str, str]:
    """Returns text with the recording of a value, and the fix."""
    owner, recorder = value.recording.owner(), recorder_of(ctx)
    if recorder is not None and recorder.has(owner):
        return "that is paused", "compute with values that have data, or leave the pause first"
    keeper = owner.recorder if isinstance(owner, Tape) else None
    if isinstance(keeper, Recorder) and keeper.ctx is ctx:
        return "that another thread or task has open", "a recording takes the ops of whoever opened it alone"
    whose = "that has ended" if owner.is_closed else "of another context"
    if recorder is None:
        return whose, "record the op there too, or compute with values that have data"
    return whose, "record its computation in this recording, or open the one around both with include_nested=True"


def _innermost(recorder: Recorder | None, is_wanted: Callable[[Recorder], bool]) -> Recorder | None:
    while recorder is not None and not is_wanted(recorder):
        recorder = recorder._around
    return recorder


def _current_task() -> Any:
    """Returns the asyncio task that runs, if any."""
    # Not imported for this, as it takes longer than all else here: no task runs if nobody has imported it.
    asyncio = sys.modules.get("asyncio")
    try:
        return None if asyncio is None else asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
