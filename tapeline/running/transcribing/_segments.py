"""Cuts the tokens of a window into segments by their timestamps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import checked_choices

_FRAMES: Final = 2  # from one timestamp to the next: one position of the encoder


@dataclass(frozen=True, slots=True)
class Cut:
    """Segment of a window.

    Attributes:
        start: its first frame, counted from the window's.
        stop: the frame behind its last one.
        tokens: its tokens, timestamps included.
    """

    start: int
    stop: int
    tokens: Sequence[int]


@checked_choices
def cut_window(
    tokens: Sequence[int], timestamp_begin: int, frames: int, *, timestamps: bool = True
) -> tuple[list[Cut], int]:
    """Cuts the tokens of a window as transformers' long-form ``generate`` does.

    A pair of timestamps ends a segment and begins the next. Text after the last pair is cut off in the middle: it is
    left out, and the next window begins there. A single timestamp at the end says that nothing follows it.

    Args:
        tokens: tokens of the window, without prompt and end.
        timestamp_begin: token of the timestamp 0.
        frames: number of frames of sound in the window.
        timestamps: whether timestamps were asked for; if not, pairs that came all the same mean nothing.

    Returns:
        The segments, and by how many frames the next window begins later.
    """
    is_timestamp = [token >= timestamp_begin for token in tokens]
    pairs = [place for place in range(1, len(tokens)) if is_timestamp[place - 1] and is_timestamp[place]]
    if not pairs or not timestamps:
        return [_whole(tokens, timestamp_begin, frames)], frames
    single_ending = is_timestamp[-2:] == [False, True]
    ends = [*pairs, len(tokens)] if single_ending else [*pairs[:-1], pairs[-1] + 1]
    cuts = []
    for start, stop in zip([0, *ends], ends, strict=False):
        piece = tokens[start:stop]
        last = piece[-1] if single_ending or stop != ends[-1] else piece[-2]
        cuts.append(Cut(_frame(piece[0], timestamp_begin), _frame(last, timestamp_begin), piece))
    return cuts, frames if single_ending else cuts[-1].stop


def _whole(tokens: Sequence[int], timestamp_begin: int, frames: int) -> Cut:
    """Returns all of a window as one segment, which ends with the last timestamp if there is one."""
    timestamps = [token for token in tokens if token >= timestamp_begin]
    ended = bool(timestamps) and timestamps[-1] != timestamp_begin
    stop = _frame(timestamps[-1], timestamp_begin) if ended else frames // _FRAMES * _FRAMES
    return Cut(0, stop, tokens)


def _frame(token: int, timestamp_begin: int) -> int:
    return (token - timestamp_begin) * _FRAMES
