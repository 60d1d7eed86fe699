"""A server that exports its model answers before the bundle is verified; the cache has verified bundles only."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tapeline
from lang_core import VerificationError
from tapeline.bundle import Bundle
from tapeline.exporting import cached_export_early
from tests.product._bundles import stablehlo_here
from tests.product._serving import ServerProcess, serving, wait_until

_FLAGS = ("--model=demo", "--slots=2", "--max_sequence=64")
_OPTIONS: dict[str, Any] = {"slots": 2, "max_sequence": 64, "num_layers": 1, "target": ["llvm-cpu"]}
_PROMPT = {"prompt": "It was the best of times,", "max_tokens": 4, "temperature": 0}


def _entries(cache: Path) -> list[str]:
    """Returns the names of the bundles in a cache, and of what is temporary there."""
    return sorted(path.name for path in (cache / "tapeline" / "bundles").iterdir() if path.is_dir())


def _text(server: ServerProcess) -> str:
    status, body = server.request("/v1/completions", _PROMPT)
    assert status == 200, body
    return body["choices"][0]["text"]


def _is_logged(server: ServerProcess, event: str) -> bool:
    return any(line["event"] == event for line in server.logged())


def test_a_server_answers_before_its_bundle_is_verified(tmp_path: Path) -> None:
    with serving(tmp_path, *_FLAGS) as server:  # ready; the verification may have ended already
        before = _text(server)
        wait_until(lambda: server.request("/health")[1] == {"status": "ready", "verification": "passed"}, 300)
        wait_until(lambda: _is_logged(server, "retired"), 60)
        assert _text(server) == before
        events = [line["event"] for line in server.logged()]
        assert (events.count("loaded"), events.count("verified")) == (2, 1)
        wait_until(lambda: len(_entries(tmp_path / "cache")) == 1)
        assert server.end() == 0
    (name,) = _entries(tmp_path / "cache")
    assert name.startswith("demo-")
    with serving(tmp_path, *_FLAGS, "--verify=before") as server:  # the same entry, which is not verified again
        assert server.request("/health") == (200, {"status": "ready"})
        assert _text(server) == before
        assert not _is_logged(server, "verified")
        assert server.end() == 0
    assert _entries(tmp_path / "cache") == [name]


def test_verify_before_waits(tmp_path: Path) -> None:
    with serving(tmp_path, *_FLAGS, "--verify=before") as server:
        assert server.request("/health") == (200, {"status": "ready"})
        steps = [line["step"] for line in server.logged() if line["event"] == "export"]
        assert steps[-1] == "verified on local-task"
        assert server.end() == 0


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, list[list[str]]]]:
    """A bundle of the cache, its links from before it was verified, and the entries of the cache then."""
    cache, links, entries = tmp_path_factory.mktemp("cache"), list[Path](), list[list[str]]()

    def note(directory: Path) -> None:
        links.append(directory)
        entries.append(_entries(cache))

    with pytest.MonkeyPatch.context() as patched, stablehlo_here():
        patched.setenv("XDG_CACHE_HOME", str(cache))
        patched.setenv("TAPELINE_MODULE_CACHE", "64MiB")  # off in the tests of Bazel
        bundle = cached_export_early("demo", note, **_OPTIONS)
        assert cached_export_early("demo", note, **_OPTIONS).path == bundle.path
    yield bundle.path, links[0], entries
    shutil.rmtree(links[0])


def test_the_cache_has_a_bundle_once_it_is_verified(shown: tuple[Path, Path, list[list[str]]]) -> None:
    path, links, entries = shown
    assert len(entries) == 1  # a bundle of the cache is not shown again
    assert entries[0] == sorted([f".{path.name}.partial", links.name])
    assert links.parent == path.parent
    names = {file.name for file in path.iterdir()} - {"report.json", "module.vhlo"}
    assert {file.name for file in links.iterdir()} == names
    assert (links / "weights.irpa").samefile(path / "weights.irpa")
    assert Bundle(links).checks.damaged() is None
    assert Bundle(path).checks.damaged() is None


def test_a_bundle_that_is_not_verified_promises_no_equal_bits(shown: tuple[Path, Path, list[list[str]]]) -> None:
    path, links, _ = shown
    before, after = Bundle(links).config.model, Bundle(path).config.model
    assert (before["invariant"], before["row_invariant"]) == ({"llvm-cpu": False}, {"llvm-cpu": False})
    assert after["row_invariant"] == {"llvm-cpu": True}


def test_a_bundle_that_is_not_verified_answers(
    shown: tuple[Path, Path, list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answers = []
    for path in shown[:2]:
        with tapeline.load(path, trust_compiled=True) as model:
            answers.append(model.generate("It was", max_new_tokens=4).token_ids)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("error", [VerificationError("logits disagree"), SystemExit()])
def test_a_bundle_that_does_not_verify_is_not_kept(
    error: BaseException,
    shown: tuple[Path, Path, list[list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of the verification, or the end of the process by SIGTERM: the next start exports and verifies again."""
    cache = shown[0].parent.parent
    shutil.copytree(cache / "modules", tmp_path / "tapeline" / "modules")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TAPELINE_MODULE_CACHE", "64MiB")
    links = list[Path]()

    def refused(*_: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patched, stablehlo_here():
        patched.setattr("tapeline.exporting._export.check_devices", refused)
        with pytest.raises(type(error)):
            cached_export_early("demo", links.append, **_OPTIONS)
    assert _entries(tmp_path) == [links[0].name]  # which is the receiver's
    events = list[str]()
    with stablehlo_here():
        bundle = cached_export_early("demo", links.append, progress=lambda event: events.append(str(event)), **_OPTIONS)
    assert len(links) == 2
    assert "verified on local-task" in events
    assert bundle.path.name == shown[0].name


def test_a_file_system_without_links_waits(
    shown: tuple[Path, Path, list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = shown[0].parent.parent
    shutil.copytree(cache / "modules", tmp_path / "tapeline" / "modules")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TAPELINE_MODULE_CACHE", "64MiB")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    with stablehlo_here():
        bundle = cached_export_early("demo", lambda path: pytest.fail(f"{path} was shown"), **_OPTIONS)
    assert _entries(tmp_path) == [bundle.path.name]
