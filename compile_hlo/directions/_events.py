"""Origins and events: how a value may be a buffer given from outside, and the uses of such a buffer by a program."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntFlag, auto
from typing import Final, NamedTuple

from compile_hlo.directions._direction import WrittenAt


class Origin(IntFlag):
    """Relation of a value to a buffer that was given. A flag holds along a path if it holds in each step of the path.

    Attributes:
        POSSIBLE: the compiler may find that the value is the buffer.
        CERTAIN: the ops in between only rename the buffer.
        OLD: the value may be the initial contents of the buffer, rather than an update of them.
        ALWAYS: certain, only by way of updates, reshapes and calls, not loops or branches.
        GIVEN: the value is the given one; all flags.
    """

    POSSIBLE = 0
    CERTAIN = 1
    OLD = 2
    ALWAYS = 4
    GIVEN = 7


Origins = Mapping[int, Origin]
"""Origins of one value by root: the number of the value that was given, whose buffer it may be."""
NONE: Final[Origins] = {}
"""Origins of a value that has a buffer of its own."""


class EventKind(Enum):
    """Kind of use of a given buffer, or of its updated or renamed values.

    Attributes:
        WRITTEN: writes into the buffer.
        READ_OLD: reads the initial contents of the buffer, and is not an update of them.
        READ_UPDATED: reads the buffer after an update, and is not an update of it.
        UPDATED_OLD: updates the initial contents of the buffer. A second op that does so is a ``READ_OLD``.
        UPDATED_AGAIN: updates the result of an update.
    """

    WRITTEN = auto()
    READ_OLD = auto()
    READ_UPDATED = auto()
    UPDATED_OLD = auto()
    UPDATED_AGAIN = auto()


class Event(NamedTuple):
    """Something that a program does with one given buffer.

    Attributes:
        kind: kind of use.
        root: number of the given value.
    """

    kind: EventKind
    root: int


Events = dict[Event, WrittenAt]
"""Each event once, with the place in the program where it happens first."""


def updates_old(events: Events) -> bool:
    """Returns whether a first update of a buffer is among the events: two of these are not the same as one."""
    return any(event.kind is EventKind.UPDATED_OLD for event in events)


def add_write(events: Events, root: int, place: WrittenAt, certain: bool) -> None:
    """Adds a write: a certain one replaces a possible one, otherwise the first one stays."""
    event = Event(EventKind.WRITTEN, root)
    before = events.get(event)
    if before is None or (certain and not before.certain):
        events[event] = WrittenAt(place.op, place.path, place.line, certain)


def add_use(events: Events, event: Event, place: WrittenAt) -> None:
    """Adds an event other than a write."""
    if event.kind is EventKind.UPDATED_OLD and event in events:
        event = Event(EventKind.READ_OLD, event.root)
    events.setdefault(event, place)


def add_all(events: Events, more: Iterable[tuple[Event, WrittenAt]]) -> None:
    """Adds writes and other events."""
    for event, place in more:
        if event.kind is EventKind.WRITTEN:
            add_write(events, event.root, place, place.certain)
        else:
            add_use(events, event, place)


def seen_from_root(kind: EventKind, how: Origin) -> Iterator[EventKind]:
    """Yields the uses of a buffer by an event of a value that originates from the buffer.

    Args:
        kind: kind of use of the value.
        how: how the value is the buffer.
    """
    if Origin.OLD in how:
        if kind is not EventKind.WRITTEN:
            yield kind
    elif Origin.ALWAYS in how:
        is_read = kind in (EventKind.READ_OLD, EventKind.READ_UPDATED)
        yield EventKind.READ_UPDATED if is_read else EventKind.UPDATED_AGAIN
