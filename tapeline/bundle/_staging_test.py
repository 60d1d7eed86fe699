import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lang_core import InputError
from tapeline.bundle import MARK, KernelConfig, check_output, staged
from tapeline.bundle import _staging as staging_module

_HOLD = """
import sys
from pathlib import Path
from tapeline.bundle import staged
with staged(Path(sys.argv[1])) as staging:
    (staging / "half").write_text("half of it")
    print("ready", flush=True)
    sys.stdin.read()
"""


def _bundle(directory: Path, text: str = "old") -> None:
    directory.mkdir()
    (directory / MARK).write_text(text)
    (directory / "weights.irpa").write_text("weights of " + text)


def _write(output: Path, text: str) -> None:
    with staged(output) as staging:
        (staging / MARK).write_text(text)


def _files(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


def _no_exchange(_a: Path, _b: Path) -> bool:
    return False


def _hold(output: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(output)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_new_bundle_appears_with_its_parents(tmp_path: Path) -> None:
    output = tmp_path / "a" / "b"
    with staged(output) as staging:
        (staging / MARK).write_text("new")
        assert not output.exists()
        assert staging.parent == output.parent  # of one file system: a rename is enough
    assert _files(output) == {MARK: "new"}
    assert os.listdir(output.parent) == ["b"]


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    _write(tmp_path / "b", "new")
    assert _files(tmp_path / "b") == {MARK: "new"}


@pytest.mark.parametrize("exchange", [staging_module._exchanged, _no_exchange], ids=["exchange", "two_renames"])
def test_an_earlier_bundle_is_replaced_whole(
    tmp_path: Path, exchange: Callable[[Path, Path], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "_exchanged", exchange)
    _bundle(tmp_path / "b")
    (tmp_path / ".b.previous").mkdir()  # left by an export that was killed
    (tmp_path / ".b.previous" / "file").write_text("older")
    with staged(tmp_path / "b") as staging:
        (staging / MARK).write_text("new")
        assert _files(tmp_path / "b") == {MARK: "old", "weights.irpa": "weights of old"}
    assert _files(tmp_path / "b") == {MARK: "new"}
    assert not (tmp_path / ".b.partial").exists()


def test_where_the_second_rename_fails_the_earlier_bundle_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "_exchanged", _no_exchange)
    _bundle(tmp_path / "b")
    rename, calls = os.rename, []

    def failing(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.EACCES, "Permission denied", str(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(InputError, match=r"cannot write .*\.b\.partial: Permission denied: choose another"):
        _write(tmp_path / "b", "new")
    assert _files(tmp_path / "b") == {MARK: "old", "weights.irpa": "weights of old"}
    assert os.listdir(tmp_path) == ["b"]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), InputError("no")])
def test_an_error_leaves_everything_as_it_was(tmp_path: Path, error: BaseException) -> None:
    _bundle(tmp_path / "b")

    def interrupted() -> None:
        with staged(tmp_path / "b") as staging:
            (staging / MARK).write_text("new")
            raise error

    with pytest.raises(type(error)):
        interrupted()
    assert _files(tmp_path / "b") == {MARK: "old", "weights.irpa": "weights of old"}
    assert os.listdir(tmp_path) == ["b"]


@pytest.mark.parametrize(("error", "resume"), [(KeyboardInterrupt(), False), (ValueError("no"), True)])
def test_what_can_be_resumed_stays(tmp_path: Path, error: BaseException, resume: bool) -> None:
    _bundle(tmp_path / "b")

    def stopped() -> None:
        with staged(tmp_path / "b", resume=resume) as staging:
            (staging / "half").write_text("half of it")
            raise error

    with pytest.raises(type(error)):
        stopped()
    assert _files(tmp_path / "b") == {MARK: "old", "weights.irpa": "weights of old"}
    with staged(tmp_path / "b", resume=True) as staging:
        assert _files(staging) == {"half": "half of it"}
        (staging / MARK).write_text("new")
    assert _files(tmp_path / "b") == {MARK: "new", "half": "half of it"}
    assert os.listdir(tmp_path) == ["b"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("named", [True, False])
def test_a_full_disk(tmp_path: Path, code: int, named: bool) -> None:
    _bundle(tmp_path / "b")
    reason = "File too large: .*ulimit -f" if code == errno.EFBIG else ""

    def fail() -> None:
        with staged(tmp_path / "b") as staging:
            (staging / "weights.irpa").write_bytes(b"half")
            raise OSError(code, os.strerror(code), *([str(staging / "weights.irpa")] if named else []))

    with pytest.raises(InputError, match=rf"output=.*/b: .*(writing|write) .*/weights\.irpa.*{reason}"):
        fail()
    assert _files(tmp_path / "b") == {MARK: "old", "weights.irpa": "weights of old"}
    assert os.listdir(tmp_path) == ["b"]


def test_a_read_only_file_system(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*/file: Read-only"), staged(tmp_path / "b") as staging:
        raise OSError(errno.EROFS, "Read-only file system", str(staging / "file"))


def test_errors_of_other_files_are_not_the_outputs(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), staged(tmp_path / "b"):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "model" / "config.json"))
    with pytest.raises(BrokenPipeError), staged(tmp_path / "b"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert os.listdir(tmp_path) == []


def test_what_a_killed_export_left_is_cleared(tmp_path: Path) -> None:
    _bundle(tmp_path / "b")
    process = _hold(tmp_path / "b")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert _files(tmp_path / "b") == {MARK: "old", "weights.irpa": "weights of old"}
    assert _files(tmp_path / ".b.partial") == {"half": "half of it"}
    (tmp_path / ".b.partial" / "folder").mkdir()
    _write(tmp_path / "b", "new")
    assert _files(tmp_path / "b") == {MARK: "new"}
    assert os.listdir(tmp_path) == ["b"]


def test_two_exports_into_one_directory_exclude_each_other(tmp_path: Path) -> None:
    process = _hold(tmp_path / "b")
    with pytest.raises(InputError, match=r"output=.*/b: another export is writing there: wait for it"):
        _write(tmp_path / "b", "second")
    assert (tmp_path / ".b.partial" / "half").is_file()  # the first one's work is untouched
    process.communicate("")
    assert _files(tmp_path / "b") == {"half": "half of it"}


def test_a_directory_that_was_published_after_it_was_opened_is_no_place_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = staging_module._lock

    def published_first(descriptor: int, output: Path) -> None:
        os.rename(tmp_path / ".b.partial", output)
        lock(descriptor, output)

    monkeypatch.setattr(staging_module, "_lock", published_first)
    with pytest.raises(InputError, match="another export is writing there"):
        _write(tmp_path / "b", "new")
    assert _files(tmp_path / "b") == {}


def test_an_earlier_bundle_is_locked_while_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _bundle(tmp_path / "b")
    remove, refused = staging_module.shutil.rmtree, []

    def another_export_first(path: Path, ignore_errors: bool = False) -> None:
        if Path(path).name == ".b.partial" and (path / "weights.irpa").exists():
            thread = threading.Thread(target=try_to_write)
            thread.start()
            thread.join()
        remove(path, ignore_errors)

    def try_to_write() -> None:
        with pytest.raises(InputError, match="another export") as caught:
            _write(tmp_path / "b", "third")
        refused.append(caught.value)

    monkeypatch.setattr(staging_module.shutil, "rmtree", another_export_first)
    _write(tmp_path / "b", "new")
    assert len(refused) == 1
    assert _files(tmp_path / "b") == {MARK: "new"}


def test_a_link_in_the_staging_directorys_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("keep")
    (tmp_path / ".b.partial").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=r"cannot write .*\.b\.partial"):
        _write(tmp_path / "b", "new")
    assert _files(tmp_path / "precious") == {"file": "keep"}


def test_files_of_somebody_else_beside_a_bundle_are_not_removed(tmp_path: Path) -> None:
    bundle = tmp_path / "b"
    bundle.mkdir()
    for name in ("module.mlir", "report.json", "thesis.tex"):
        (bundle / name).write_text("keep")
    KernelConfig([], sha256={"module.mlir": "0"}).write(bundle / MARK)
    with pytest.raises(
        InputError, match=r"beside the bundle the directory holds thesis\.tex, which an export would remove"
    ):
        check_output(bundle)
    (bundle / "thesis.tex").unlink()
    check_output(bundle)


def test_check_output_refuses_what_is_no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("")
    for name in ("file", "link"):
        with pytest.raises(InputError, match=f"output=.*/{name}: a file of that name exists: choose another"):
            check_output(tmp_path / name)
    with pytest.raises(InputError, match=r"holds files that are not a bundle \(it has no kernel_config.json\)"):
        check_output(tmp_path / "home")
    with pytest.raises(InputError, match=r"files that are not a bundle"):
        check_output(Path("/"))
    with pytest.raises(InputError, match=r"/file is not a directory: choose another"):
        check_output(tmp_path / "file" / "b")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=r"no permission to write in .*: choose another directory"):
        check_output(tmp_path / "b")


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*: File name too long"):
        _write(tmp_path / ("x" * 300), "new")
    with pytest.raises(InputError, match=r"output=/proc/tapeline: (cannot write|no permission)"):
        _write(Path("/proc/tapeline"), "new")
