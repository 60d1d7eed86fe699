import threading
from pathlib import Path
from typing import Any

import pytest

from lang_core import InputError, ProcessError
from tapeline.cli import ProgressEvent
from tapeline.command import _export_process
from tapeline.command._export_process import ExportProcess

_OPTIONS: dict[str, Any] = {"target": [], "weights": "none", "num_layers": 1, "verify": "none"}


def test_a_bundle_comes_from_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    events = list[ProgressEvent]()
    bundle = ExportProcess().run("demo", events.append, _OPTIONS)
    assert bundle.path.parent == tmp_path / "tapeline" / "bundles"
    assert bundle.config.entry_points


def test_errors_of_the_export_are_raised_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="quantize"):
        ExportProcess().run("demo", print, {**_OPTIONS, "quantize": "q9_9"})


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.kill(os.getpid(), 9)", "exported demo ended with -9; the machine may have run out of memory"),
        ("print('half')", "exported demo ended with 0: its last words"),
    ],
)
def test_a_process_that_dies_is_told(program: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_export_process, "_PROGRAM", program)
    with pytest.raises(ProcessError, match=message):
        ExportProcess().run("demo", print, _OPTIONS)


@pytest.mark.parametrize("deaf", [False, True])
def test_an_export_can_be_ended(deaf: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "import pickle, signal, sys, time",
        "from tapeline.cli import ProgressEvent",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else "",
        "pickle.dump(ProgressEvent('begun'), sys.stdout.buffer)",
        "sys.stdout.flush()",
        "time.sleep(99)",
    ]
    program = "\n".join(lines)
    monkeypatch.setattr(_export_process, "_PROGRAM", program)
    monkeypatch.setattr(_export_process, "_PATIENCE", 0.05)
    export = ExportProcess()

    def told(event: Any) -> None:
        assert event.text == "begun"
        threading.Thread(target=export.end).start()

    with pytest.raises(ProcessError, match="the export of demo was ended: ask again"):
        export.run("demo", told, _OPTIONS)
    with pytest.raises(ProcessError, match="ended before it began"):
        export.run("demo", told, _OPTIONS)
