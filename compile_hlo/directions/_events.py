"""What is noted of buffers that are given from outside: how a value may be one, writes, and other uses that matter."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntFlag
from typing import Final

from compile_hlo.directions._direction import WrittenAt


class Origin(IntFlag):
    """How a value may be a buffer. What holds along a path through the program holds in each part of it."""

    POSSIBLE = 0
    CERTAIN = 1
    OLD = 2
    ALWAYS = 4  # certain, by way of nothing but updates, reshapes and calls: no loop, no branch
    GIVEN = 7


# By identity of the root, a Value, or by its number.
Origins = Mapping[int, Origin]
Written = dict[int, WrittenAt]

# What else is noted of a buffer that ops rename and update, one after the other, beside that it is written: that
# another op reads what it held at first, or after an update; that it is updated once more; and that what it held at
# first is updated: a second op that does so reads it. Keys of ``Written`` that are negative say which, and of which
# buffer.
READ_OLD: Final = 1
READ_LATER: Final = 2
AGAIN: Final = 3
UPDATED: Final = 4
_KINDS: Final = 8  # more than there are


def event(kind: int, root: int) -> int:
    """The key of what is noted of a buffer."""
    return -(root * _KINDS + kind)


def event_of(key: int) -> tuple[int, int]:
    """Kind and buffer of a key; the kind is 0 of a write."""
    return (-key % _KINDS, -key // _KINDS) if key < 0 else (0, key)


def updates_old(written: Written) -> bool:
    """Whether an update of what a buffer held at first is noted: two of these are not the same as one."""
    return any(event_of(key)[0] == UPDATED for key in written)


def note_event(written: Written, kind: int, root: int, place: WrittenAt) -> None:
    """Adds an event."""
    if kind == UPDATED and event(UPDATED, root) in written:
        kind = READ_OLD
    written.setdefault(event(kind, root), place)


def events(kind: int, how: Origin) -> Iterator[int]:
    """What an event of a value is of the buffer that the value is in some way."""
    if Origin.OLD in how:
        if kind:
            yield kind
    elif Origin.ALWAYS in how:
        yield READ_LATER if kind in (READ_OLD, READ_LATER) else AGAIN


def note_all(written: Written, more: Iterable[tuple[int, WrittenAt]]) -> None:
    """Adds writes and events."""
    for key, place in more:
        kind, root = event_of(key)
        if kind:
            note_event(written, kind, root, place)
        else:
            note(written, root, place, place.certain)


def note(written: Written, root: int, place: WrittenAt, certain: bool) -> None:
    """Adds a write: a certain one replaces a possible one, and else the first one stays."""
    before = written.get(root)
    if before is None or (certain and not before.certain):
        written[root] = WrittenAt(place.op, place.path, place.line, certain)
