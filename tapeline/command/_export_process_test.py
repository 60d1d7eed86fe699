import gc
import os
import queue
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from lang_core import InputError, ProcessError, VerificationError
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


class _Follower:
    """Notes the beginning and the end of a verification."""

    def __init__(self) -> None:
        self.begun = 0
        self.ends = queue.SimpleQueue[BaseException | None]()

    def begin(self) -> None:
        self.begun += 1

    def end(self, error: BaseException | None) -> None:
        self.ends.put(error)


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle, beside a directory ``links`` that stands for the bundle before it is verified."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bundle = ExportProcess().run("demo", print, _OPTIONS)
    shutil.copytree(bundle.path, tmp_path / "links")
    os.mkfifo(tmp_path / "go")
    return tmp_path / "links"


def _program(links: Path, end: str) -> str:
    """Returns a program that shows a bundle, and goes on with ``end`` when the test opens the pipe."""
    lines = [
        "import pickle, sys",
        "from pathlib import Path",
        "from lang_core import VerificationError",
        "from tapeline.cli import ProgressEvent",
        "from tapeline.command._export_process import Unverified",
        f"pickle.dump(Unverified(Path({str(links)!r})), sys.stdout.buffer)",
        "sys.stdout.flush()",
        f"open({str(links.with_name('go'))!r}).close()",
        "pickle.dump(ProgressEvent('verifying'), sys.stdout.buffer)",
        end,
        "sys.stdout.flush()",
    ]
    return "\n".join(lines)


def _go_on(links: Path) -> None:
    links.with_name("go").open("w").close()


def test_a_bundle_comes_before_it_is_verified(links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = links.with_name("tapeline") / "bundles"
    (path,) = [entry for entry in bundles.iterdir() if entry.is_dir()]
    end = f"pickle.dump(Path({str(path)!r}), sys.stdout.buffer)"
    monkeypatch.setattr(_export_process, "_PROGRAM", _program(links, end))
    follower, events = _Follower(), list[str]()
    bundle = ExportProcess().run("demo", lambda event: events.append(event.text), _OPTIONS, follower)
    assert (bundle.path, follower.begun, follower.ends.empty(), events) == (links, 1, True, [])
    _go_on(links)
    assert follower.ends.get(timeout=30) is None
    assert events == ["verifying"]
    assert bundle.config.entry_points
    del bundle
    gc.collect()
    assert not links.exists()


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        ("pickle.dump(VerificationError('logits disagree'), sys.stdout.buffer)", VerificationError, "logits disagree"),
        ("raise SystemExit(3)", ProcessError, "the process that exported demo ended with 3"),
    ],
)
def test_the_follower_receives_the_error(
    end: str, kind: type[Exception], message: str, links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_export_process, "_PROGRAM", _program(links, end))
    follower = _Follower()
    bundle = ExportProcess().run("demo", print, _OPTIONS, follower)
    _go_on(links)
    error = follower.ends.get(timeout=30)
    assert isinstance(error, kind)
    assert message in str(error)
    assert bundle.path.is_dir()  # answers that run may still read files


def test_a_verification_can_be_ended(links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_export_process, "_PROGRAM", _program(links, ""))
    export, follower = ExportProcess(), _Follower()
    bundle = export.run("demo", print, _OPTIONS, follower)
    export.end()
    for thread in threading.enumerate():
        if thread.name == "verification":
            thread.join(30)
    assert follower.ends.empty()
    with pytest.raises(ProcessError, match="ended before it began"):
        export.run("demo", print, _OPTIONS, follower)
    del bundle


def test_a_bundle_that_is_in_the_cache_is_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    follower = _Follower()
    first = ExportProcess().run("demo", print, _OPTIONS, follower)  # verify=none: there is nothing to wait for
    assert ExportProcess().run("demo", print, _OPTIONS, follower).path == first.path
    assert (follower.begun, follower.ends.empty()) == (0, True)
