"""Turns of a conversation: lines, and interrupts at the prompt and during an answer."""

import io
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lang_core import InputError
from tapeline.command import _chat_loop
from tapeline.command._chat_loop import ChatLoop, stoppable
from tapeline.command._flags import flag_translator


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
    """Terminal on which Ctrl-C may be pressed before a line."""

    def __init__(self, text: str, *, pressed: int | None = None) -> None:
        super().__init__(text)
        self.lines = 0
        self._pressed = pressed

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:
        self.lines += 1
        if self.lines == self._pressed:
            raise KeyboardInterrupt
        return super().readline(-1 if size is None else size)


def test_an_interrupt_at_the_prompt_ends_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal("a\n \n b c \n"))
    assert list(_chat_loop._lines()) == ["a", "b c"]
    assert capsys.readouterr().err == "> > > > "
    monkeypatch.setattr("sys.stdin", _Terminal("a\nb\n", pressed=2))
    lines = _chat_loop._lines()
    assert next(lines) == "a"
    with pytest.raises(KeyboardInterrupt):
        next(lines)


class _Answers:
    """Model whose conversations note what they were asked."""

    bundle = SimpleNamespace(path="b")

    def __init__(self, *, sees: bool = True) -> None:
        self.sees = sees
        self.asked: list[tuple[str, list[str]]] = []

    def chat(self, system: str | None) -> "_Answers":
        assert system is None
        return self

    def stream(self, text: str, *, images: Sequence[Path], **options: object) -> str:
        assert options == {"seed": 3}
        if text == "too long":
            raise InputError("export with max_sequence=9")
        self.asked.append((text, [path.name for path in images]))
        return text


def test_pictures_go_with_the_turn_that_follows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("b.png", "c d.png"):
        (tmp_path / name).touch()
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO("first\n/image b.png\n/image c d.png\nsecond\nthird\n"))
    model = _Answers()
    assert [*ChatLoop(cast(Any, model), None, None, {"seed": 3}, [Path("a.png")])] == ["first", "second", "third"]
    assert model.asked == [("first", ["a.png"]), ("second", ["b.png", "c d.png"]), ("third", [])]


def test_what_is_refused_on_a_terminal_does_not_end_the_conversation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    lines = "first\ntoo long\n/image no.png\n/rest\n/image\n/usr/bin is a turn\n"
    monkeypatch.setattr("sys.stdin", _Terminal(lines))
    model = _Answers()
    turns = ChatLoop(cast(Any, model), None, None, {"seed": 3}, translate=flag_translator(["max_sequence"]))
    assert [*turns] == ["first", "/usr/bin is a turn"]
    err = capsys.readouterr().err
    assert "error: export with --max_sequence=9\n(discarded; the conversation stays, and /reset clears it)" in err
    assert "error: /image no.png: there is no file " in err
    assert "error: /rest: unknown command; did you mean '/reset'?: one message per line; /reset clears" in err
    assert "error: /image: unknown command" in err
    assert "/image FILE puts a picture before the next turn" in err


def test_a_model_that_takes_no_pictures_refuses_them_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", _Terminal("/image a.png\nfirst\n"))
    assert [*ChatLoop(cast(Any, _Answers(sees=False)), None, None, {"seed": 3})] == ["first"]
    err = capsys.readouterr().err
    assert "error: /image a.png: b is of a model that takes no pictures" in err
    assert "FILE" not in err


def test_elsewhere_what_is_refused_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("too long\nnever asked\n"))
    model = _Answers()
    with pytest.raises(InputError, match="export with max_sequence=9"):
        list(ChatLoop(cast(Any, model), None, None, {"seed": 3}))
    assert model.asked == []
