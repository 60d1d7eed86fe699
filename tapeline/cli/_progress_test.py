import os
import pty
import re
import sys
import termios
import threading

import pytest

from tapeline.cli import ByteProgress, _progress, say


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
    assert capsys.readouterr().err.startswith("weights: 0 of 0 MiB")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
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
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with ByteProgress("weights") as progress:
            for done in range(0, 1025, 256):
                progress(done * 1024, 1024 * 1024)
    reader.join()
    os.close(ours)
    text = b"".join(seen).decode()
    assert re.search(r"weights: 100%\|.*\| 1\.00M/1\.00M", text)
    assert "MiB/s" not in text  # the lines are for files
