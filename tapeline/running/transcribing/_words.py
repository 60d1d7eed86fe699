"""Words of a Whisper's tokens and their times, as transformers' pipeline joins them."""

import string
from collections.abc import Callable, Sequence
from typing import Final

from tapeline.running.transcribing._alignment import SECONDS_PER_POSITION
from tapeline.running.transcribing._transcription import Word

Decode = Callable[[Sequence[int]], str]
TimedToken = tuple[int, float]
"""A token, and its time."""

_WINDOW: Final = 30.0  # seconds
_UNDECODED: Final = "\ufffd"
_BEFORE: Final = "\"'“¡¿([{-"
_AFTER: Final = "\"'.\u3002,\uff0c!\uff01?\uff1f:\uff1a”)]}\u3001"
# Codes of languages that are written without spaces.
_WITHOUT_SPACES: Final = ("zh", "ja", "th", "lo", "my", "yue")


def words_of(
    tokens: Sequence[TimedToken], first_timestamp: int, eos: int, language: str | None, decode: Decode
) -> list[Word]:
    """Returns the words of a transcription.

    Args:
        tokens: all tokens of its segments, timestamps included, with their times in seconds of the sound.
        first_timestamp: token of the timestamp 0.
        eos: token from which on tokens are special.
        language: code of the language; None for one with spaces.
        decode: returns the text of tokens.
    """
    words: list[Word] = []
    for group in _groups(tokens, first_timestamp, eos):
        pieces = _pieces([token for token, _, _ in group], decode)
        if language not in _WITHOUT_SPACES:
            pieces = _spaced(pieces)
        for text, places in _punctuated(pieces):
            words.append(Word(start=group[places[0]][1], end=group[places[-1]][2], text=text))
    return words


def _groups(tokens: Sequence[TimedToken], first_timestamp: int, eos: int) -> list[list[tuple[int, float, float]]]:
    """Returns the text's tokens with start and end, parted where timestamps end a segment."""
    groups: list[list[tuple[int, float, float]]] = [[]]
    begun: float | None = None
    greatest = penultimate = offset = 0.0
    for place, (token, time) in enumerate(tokens):
        if token < first_timestamp:
            if token < eos:
                start = tokens[place - 1][1] if place else 0.0
                groups[-1].append((token, round(start, 2), round(time, 2)))
            continue
        timestamp = (token - first_timestamp) * SECONDS_PER_POSITION
        if timestamp < greatest:  # the next window
            pair = place >= 2 and all(tokens[place - back][0] >= first_timestamp for back in (1, 2))
            if place >= 2 and not pair:
                offset += _WINDOW
            else:
                greatest = penultimate
                offset += penultimate
        penultimate, greatest = greatest, timestamp
        seconds = round(timestamp + offset, 2)
        if begun is None:
            begun = seconds
        elif seconds != begun:
            begun = None
            groups.append([])
    return [group for group in groups if group]


def _pieces(tokens: Sequence[int], decode: Decode) -> list[tuple[str, list[int]]]:
    """Returns whole characters, and the places of their tokens."""
    whole, offset = decode(tokens), 0
    pieces: list[tuple[str, list[int]]] = []
    places: list[int] = []
    for place in range(len(tokens)):
        places.append(place)
        text = decode([tokens[index] for index in places])
        broken = text.find(_UNDECODED)
        if broken < 0 or offset + broken >= len(whole) or whole[offset + broken] == _UNDECODED:
            pieces.append((text, places))
            places = []
            offset += len(text)
    return pieces


def _spaced(pieces: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """Joins pieces that follow each other without a space, except punctuation."""
    words: list[tuple[str, list[int]]] = []
    for text, places in pieces:
        if not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append((text, places))
        else:
            words[-1] = words[-1][0] + text, [*words[-1][1], *places]
    return words


def _punctuated(words: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """Joins opening punctuation with the word behind it, and closing punctuation with the word before it."""
    words = list(words)
    after = len(words) - 1
    for place in range(len(words) - 2, -1, -1):
        text, places = words[place]
        if text.startswith(" ") and text.strip() in _BEFORE:
            words[after] = text + words[after][0], [*places, *words[after][1]]
            words[place] = "", []
        else:
            after = place
    before = 0
    for place in range(1, len(words)):
        text, places = words[place]
        if not words[before][0].endswith(" ") and text in _AFTER:
            words[before] = words[before][0] + text, [*words[before][1], *places]
            words[place] = "", []
        else:
            before = place
    return [(text, places) for text, places in words if places]
