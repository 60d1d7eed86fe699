import os
import pty
import re
import sys
import termios
import threading
from collections.abc import Callable

import pytest

from tapeline.cli import (
    ByteProgress,
    ProgressEvent,
    StepProgress,
    TerminalProgress,
    _progress,
    say,
    say_error,
    show,
)


def test_say_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say("a line")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "a line\n")


def test_lines_come_every_few_seconds_and_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    mebi = 2**20
    with ByteProgress("weights") as progress:
        for second, done in enumerate(range(13)):
            now[0] = 100.0 + second
            progress(done * mebi, 12 * mebi)
    assert capsys.readouterr().err.splitlines() == [
        "weights: 5 of 12 MiB, 1 MiB/s, 7 s left",
        "weights: 10 of 12 MiB, 1 MiB/s, 2 s left",
        "weights: 12 of 12 MiB, 1 MiB/s, 0 s left",
    ]


def test_nothing_to_do_is_no_division_by_zero(capsys: pytest.CaptureFixture[str]) -> None:
    with ByteProgress("weights") as progress:
        progress(0, 0)
    assert capsys.readouterr().err.startswith("weights: 0 of 0 KiB")


def _terminal(monkeypatch: pytest.MonkeyPatch, stream: str, write: Callable[[], None]) -> str:
    """Returns what a terminal of 80 columns got while ``write`` ran with it in place of a stream of ``sys``."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    seen: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            seen.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, stream, terminal)
        write()
    reader.join()
    os.close(ours)
    return b"".join(seen).decode()


def _uncoloured(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_bar_of_bytes_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        with ByteProgress("weights") as progress:
            for done in range(0, 1025, 256):
                progress(done * 1024, 1024 * 1024)

    text = _uncoloured(_terminal(monkeypatch, "stderr", write))
    assert re.search(r"weights ━+ 1\.0/1\.0 MiB", text)
    assert "s left" not in text  # the lines are for files


def test_a_bar_of_steps_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        with StepProgress("tuning") as progress:
            progress.step(0, 2, "first")
            progress.detail("candidate [3]")
            progress.step(1, 2, "second")

    text = _uncoloured(_terminal(monkeypatch, "stderr", write))
    assert re.search(r"tuning .* 1/2 .*second", text)


def test_steps_are_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with StepProgress("tuning") as progress:
        progress.step(0, 2, "first")
        progress.detail("candidate 3")
    assert capsys.readouterr().err == "tuning 1 of 2: first\n"


def test_errors_are_red_on_a_terminal_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    message = f"[bold]no markup[/bold] :smile: {'a long line ' * 12}end"
    text = _terminal(monkeypatch, "stderr", lambda: say_error(message))
    assert "\x1b[1;31merror:" in text
    assert _uncoloured(text).replace("\r", "") == f"error: {message}\n"


def test_tables_have_colours_on_a_terminal_and_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"devices\n  local-task  yes  {'x' * 90}\n  cuda        no   [reason]\n"
    text = _terminal(monkeypatch, "stdout", lambda: show(table))
    assert "\x1b[32myes" in text
    assert "\x1b[1mdevices" in text
    assert _uncoloured(text).replace("\r", "") == table


def test_tables_are_plain_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    show("devices\n  cuda  no\n")
    say_error("wrong")
    assert capsys.readouterr() == ("devices\n  cuda  no\n", "error: wrong\n")


def test_steps_say_how_long_the_rest_takes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: now[0])
    with TerminalProgress() as progress:
        progress(ProgressEvent("verifying ..."))
        for done in range(3):
            progress(ProgressEvent("verifying", done, 3, f"entry {done}"))
            now[0] += 4
        progress(ProgressEvent("weights", 1, 1))
    assert capsys.readouterr().err.splitlines() == [
        "verifying ...",
        "verifying 1 of 3: entry 0",
        "verifying 2 of 3: entry 1, 8 s left",
        "verifying 3 of 3: entry 2, 4 s left",
        "weights: 0 of 0 KiB, 0 KiB/s, 0 s left",
    ]


def test_what_cannot_be_counted_has_a_clock_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        with TerminalProgress() as progress:
            progress(ProgressEvent("compiling [module] ..."))
            progress(ProgressEvent("verifying", 0, 2, "prefill"))

    text = _uncoloured(_terminal(monkeypatch, "stderr", write))
    assert re.search(r"compiling \[module\] \.\.\. 0:00:00", text)
    assert re.search(r"verifying .* 0/2 .*prefill", text)
