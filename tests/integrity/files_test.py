"""Files of a bundle that are not those that were exported: a typed error, never another answer."""

import contextlib
import json
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import tapeline
from lang_core import DescriptionError, InputError, TapelineError
from tapeline.bundle import ARCHIVE, MARK, REPORT, note_matching
from tapeline.text import Chat, Tokenizer

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
_DRAWS: Final = 600 if _LONG else 60
_PROMPT: Final = "It was the best of times,"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's cache for this file alone."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "tapeline"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    sizes: dict[str, Any] = {"sequence": 8, "max_sequence": 32, "num_layers": 1, "verify": "none"}
    return tapeline.export("demo", tmp_path_factory.mktemp("a") / "demo", **sizes).path


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A bundle of the same model with other sizes: its files look alike."""
    folder = tmp_path_factory.mktemp("b") / "demo"
    return tapeline.export("demo", folder, sequence=4, max_sequence=24, num_layers=2, verify="none").path


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


@pytest.fixture
def in_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small weights are compared as large ones are."""
    monkeypatch.setattr("tapeline.bundle._checks._AT_ONCE", 0)


def answer(bundle: Path, **options: Any) -> str:
    with tapeline.load(bundle, **options) as model:
        return model.generate(_PROMPT, max_new_tokens=4).text


def flip(path: Path, place: int) -> None:
    """Flips a bit in place."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))


def _mutate(draw: random.Random, bundle: Path, other: Path, name: str) -> str:
    """Damages a file, and returns how."""
    path, size = bundle / name, (bundle / name).stat().st_size
    kind = draw.choice(["flip", "truncate", "extend", "zero", "swap", "replace"])
    if kind == "flip":
        place, bit = draw.randrange(size), 1 << draw.randrange(8)
        with path.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)
            file.seek(place)
            file.write(bytes([byte[0] ^ bit]))
        return f"bit {bit} of byte {place} of {name}"
    if kind == "truncate":
        keep = draw.randrange(size)
        os.truncate(path, keep)
        return f"{name} cut to {keep} bytes"
    if kind == "extend":
        with path.open("ab") as file:
            file.write(draw.randbytes(draw.choice([1, 64, 5000])))
        return f"{name} made longer"
    if kind == "zero":
        start = draw.randrange(size)
        with path.open("r+b") as file:
            file.seek(start)
            file.write(bytes(min(512, size - start)))
        return f"zeros from byte {start} of {name}"
    if kind == "swap":
        with_name = draw.choice([file.name for file in bundle.iterdir() if file.name not in (name, REPORT)])
        path.rename(bundle / "away")
        (bundle / with_name).rename(path)
        (bundle / "away").rename(bundle / with_name)
        return f"{name} and {with_name} swapped"
    shutil.copyfile(other / name, path)
    return f"{name} of another bundle"


def test_every_damaged_file_is_one_typed_error(bundle: Path, other: Path, tmp_path: Path) -> None:
    """Flipped, cut, extended, zeroed, swapped and replaced files, at drawn places; the same contents are no damage."""
    expected = answer(bundle)
    names = sorted(path.name for path in bundle.iterdir() if path.name != REPORT)
    draw, damaged = random.Random(44), 0
    for number in range(_DRAWS):
        copy = Path(shutil.copytree(bundle, tmp_path / f"{number}"))
        how = _mutate(draw, copy, other, names[number % len(names)])
        is_same = all(_contents(copy / name) == _contents(bundle / name) for name in names)
        outcome = _outcome(copy)
        if is_same:
            assert outcome == expected, how
        else:
            assert isinstance(outcome, TapelineError), f"{how}: the answer was {outcome!r}, expected {expected!r}"
            damaged += 1
        shutil.rmtree(copy)
    print(f"{damaged} damaged bundles refused, {_DRAWS - damaged} with the same contents")
    assert damaged > _DRAWS * 0.8


def _outcome(bundle: Path) -> str | TapelineError:
    try:
        return answer(bundle)
    except TapelineError as error:
        return error


def _contents(path: Path) -> Any:
    """Returns what a file says: JSON of the description, whose spaces do not matter; else its bytes."""
    data = path.read_bytes()
    try:
        return json.loads(data) if path.name == MARK else data
    except ValueError:
        return data


def test_a_damaged_report_changes_nothing(copy: Path, bundle: Path) -> None:
    (copy / REPORT).write_bytes(b"\0")
    assert answer(copy) == answer(bundle)


@pytest.mark.parametrize("engine", ["iree", "jax"])
@pytest.mark.parametrize("at_once", [True, False])
def test_other_weights_are_never_silent(
    engine: str, at_once: bool, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.bundle._checks._AT_ONCE", 2**24 if at_once else 0)
    flip(copy / ARCHIVE, (copy / ARCHIVE).stat().st_size - 1000)
    with pytest.raises(DescriptionError, match=r"weights\.irpa is not the file that kernel_config\.json describes"):
        answer(copy, engine=engine)


@pytest.mark.usefixtures("in_background")
def test_a_difference_that_is_found_late_ends_the_answer(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(copy / ARCHIVE, (copy / ARCHIVE).stat().st_size - 1000)
    loaded, plain = threading.Event(), os.preadv

    def waiting(*arguments: Any) -> int:
        loaded.wait()
        return plain(*arguments)

    monkeypatch.setattr("os.preadv", waiting)
    model = tapeline.load(copy)
    loaded.set()
    with pytest.raises(DescriptionError, match="sha256 differs"):
        model.bundle.checks.wait()
    with pytest.raises(DescriptionError, match="sha256 differs"):
        model.generate(_PROMPT, max_new_tokens=4)
    with pytest.raises(DescriptionError, match="sha256 differs"):
        model.score(_PROMPT)
    with pytest.raises(DescriptionError, match="sha256 differs"):
        model.close()


@pytest.mark.usefixtures("in_background")
def test_full_waits_and_sizes_and_off_do_not_read(copy: Path) -> None:
    flip(copy / ARCHIVE, (copy / ARCHIVE).stat().st_size - 1000)
    with pytest.raises(DescriptionError, match="sha256 differs"):
        tapeline.load(copy, verify="full")
    for verify in ("sizes", "off"):
        with tapeline.load(copy, verify=verify) as model:
            model.generate(_PROMPT, max_new_tokens=2)
    os.truncate(copy / ARCHIVE, (copy / ARCHIVE).stat().st_size - 5000)
    with pytest.raises(InputError, match=r"weights\.irpa"):
        tapeline.load(copy, verify="sizes")


def test_an_unknown_way_is_refused(bundle: Path) -> None:
    way: Any = "ful"
    with pytest.raises(InputError, match=r"verify: .*did you mean .full."):
        tapeline.load(bundle, verify=way)


@pytest.mark.usefixtures("in_background")
def test_weights_are_read_once_for_each_copy(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plain = os.preadv

    def counted(*arguments: Any) -> int:
        read.append(1)
        return plain(*arguments)

    monkeypatch.setattr("os.preadv", counted)
    monkeypatch.setattr("tapeline.bundle._trust._SETTLED_NS", 0)  # the copy is as new as its record
    answer(copy)
    assert read
    read.clear()
    answer(copy)
    assert not read
    os.utime(copy / ARCHIVE)
    answer(copy)
    assert read


def test_an_export_leaves_nothing_to_read(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def preadv(*arguments: Any) -> int:
        raise AssertionError(f"the archive is read ({arguments})")

    monkeypatch.setattr("os.preadv", preadv)
    assert answer(bundle)


def test_weights_that_changed_in_the_tick_of_their_hash_are_not_recorded(copy: Path, cache: Path) -> None:
    """Two changes within one tick of the clock of the file system have the same time."""
    before = set((cache / "trusted").glob("*.matching"))
    (copy / ARCHIVE).write_bytes((copy / ARCHIVE).read_bytes())
    status = (copy / ARCHIVE).stat()
    note_matching(copy / ARCHIVE, status, "0" * 64)
    assert set((cache / "trusted").glob("*.matching")) == before


def test_damaged_drafts_are_refused(bundle: Path, copy: Path) -> None:
    flip(copy / "tokenizer_config.json", 20)
    with pytest.raises(DescriptionError, match=r"tokenizer_config\.json is not the file"):
        tapeline.load(bundle, draft=copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "has lost tokenizer.json, which kernel_config.json lists"),
        (
            lambda path: (path.unlink(), path.mkdir()),
            "tokenizer.json: kernel_config.json lists it, and it cannot be read",
        ),
        (lambda path: (path.unlink(), os.mkfifo(path)), "it is no regular file"),  # nobody writes into the pipe
        (lambda path: (path.unlink(), path.symlink_to("/dev/zero")), "it is no regular file"),
    ],
)
def test_a_lost_file_is_named(change: Callable[[Path], object], message: str, copy: Path) -> None:
    change(copy / "tokenizer.json")
    with pytest.raises(InputError, match=message):
        answer(copy)


@pytest.mark.parametrize("verify", ["background", "full", "sizes"])
@pytest.mark.parametrize("target", ["", "/dev/zero"])
def test_a_pipe_and_a_device_are_no_files(target: str, verify: str, copy: Path) -> None:
    """A pipe would block for ever, and a device has no end."""

    def opened(name: str, verify: Any) -> object:
        template = name == "chat_template.jinja"
        return Chat.of(copy, Tokenizer.load(copy)) if template else answer(copy, verify=verify)

    for name in (ARCHIVE, "module.mlir", "config.json", "chat_template.jinja"):
        kept = copy / f"{name}.kept"
        with contextlib.suppress(FileNotFoundError):
            (copy / name).rename(kept)
        if target:
            (copy / name).symlink_to(target)
        else:
            os.mkfifo(copy / name)
        with pytest.raises(InputError, match=r"no regular file|has lost weights\.irpa"):
            opened(name, verify)
        (copy / name).unlink()
        with contextlib.suppress(FileNotFoundError):
            kept.rename(copy / name)


@pytest.mark.parametrize("name", ["module.vhlo", "module.mlir"])
def test_a_module_that_is_not_used_may_be_removed(name: str, copy: Path, bundle: Path) -> None:
    (copy / name).unlink()
    assert answer(copy) == answer(bundle)
