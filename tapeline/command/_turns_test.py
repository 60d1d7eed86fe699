"""Turns of a conversation: lines, and interrupts at the prompt and during an answer."""

import io
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tapeline.command import _turns
from tapeline.command._turns import Turns, stoppable


def _pressing(times: dict[int, int]) -> Iterator[SimpleNamespace]:
    """Yields tokens, and sends the program an interrupt so many times before some of them."""
    for i in range(6):
        for _ in range(times.get(i, 0)):
            os.kill(os.getpid(), signal.SIGINT)
        yield SimpleNamespace(text=str(i))


def test_an_interrupt_stops_the_answer_and_a_second_one_the_program() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stoppable(cast(Any, _pressing({2: 1}))) as tokens:
        assert [token.text for token in tokens] == ["0", "1", "2"]
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt), stoppable(cast(Any, _pressing({2: 2}))) as tokens:
        list(tokens)
    assert signal.getsignal(signal.SIGINT) is before


class _Terminal(io.StringIO):
    """Terminal on which Ctrl-C is pressed before the first line."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.pressed = False

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:
        if not self.pressed:
            self.pressed = True
            raise KeyboardInterrupt
        return super().readline(-1 if size is None else size)


def test_an_interrupt_at_the_prompt_drops_the_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal("a\n \n b c \n"))
    assert list(_turns._lines()) == ["a", "b c"]
    assert capsys.readouterr().err == "> \n> > > > "


class _Answers:
    """Model whose conversations note what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def chat(self, system: str | None) -> "_Answers":
        assert system is None
        return self

    def stream(self, text: str, *, images: Sequence[Path], **options: object) -> str:
        assert options == {"seed": 3}
        self.asked.append((text, [path.name for path in images]))
        return text


def test_pictures_go_with_the_turn_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("first\n/image b.png\n/image c.png\nsecond\nthird\n"))
    model = _Answers()
    assert [*Turns(cast(Any, model), None, None, {"seed": 3}, [Path("a.png")])] == ["first", "second", "third"]
    assert model.asked == [("first", ["a.png"]), ("second", ["b.png", "c.png"]), ("third", [])]
