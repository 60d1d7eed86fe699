"""Turns of a conversation: lines, and interrupts at the prompt and during an answer."""

import io
import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tapeline.command import _turns
from tapeline.command._turns import stoppable


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
