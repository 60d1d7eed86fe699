"""Stop strings, against a search of the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from tapeline.text._stop_text import StopText

TEXTS = st.text("abc ", max_size=40)
STOPS = st.lists(st.text("abc ", min_size=1, max_size=4), max_size=4)


def first_stop(text: str, stops: list[str]) -> int | None:
    """Returns the end of the text, looked for at each place that a stop string may be complete."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


@given(st.lists(TEXTS, max_size=12), STOPS)
def test_text_ends_before_the_first_stop_string(pieces: list[str], stops: list[str]) -> None:
    text = StopText(stops)
    sent = [text.push(piece) for piece in pieces]
    whole = "".join(pieces)
    end = first_stop(whole, stops)
    assert text.stopped == (end is not None)
    assert "".join(sent) + text.finish() == whole[:end]


@given(TEXTS, STOPS)
def test_nothing_is_held_back_that_cannot_begin_a_stop_string(whole: str, stops: list[str]) -> None:
    text = StopText(stops)
    sent = text.push(whole)
    if not text.stopped:
        held = whole[len(sent) :]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_without_stop_strings_text_passes() -> None:
    text = StopText([])
    assert (text.push("all of it"), text.finish(), text.stopped) == ("all of it", "", False)
