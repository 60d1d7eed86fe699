"""Compiled modules of others are not run, damaged bundles of the cache are made again, shared caches are refused."""

import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

import tapeline
from lang_core import InputError, MissingPackageError
from tapeline.bundle import MARK, MODULE, executable_name, sha256_of
from tapeline.command import main

_PROMPT: Final = "It was the best of times,"
_VMFB: Final = executable_name("llvm-cpu")
_SIZES: Final[dict[str, Any]] = {"sequence": 8, "max_sequence": 32, "num_layers": 1}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache with which the bundle is exported."""
    return tmp_path_factory.mktemp("theirs")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, theirs: Path) -> Path:
    """A bundle that was exported with another cache: by another user, or on another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(theirs))
        patch.setenv("TAPELINE_MODULE_CACHE", "64MiB")
        patch.setattr(
            "tapeline.bundle._compiled.note_compiled", lambda *arguments: None
        )  # this process is another one, too
        return tapeline.export("demo", tmp_path_factory.mktemp("a") / "demo", verify="none", **_SIZES).path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TAPELINE_MODULE_CACHE", "64MiB")
    monkeypatch.setattr("tapeline.bundle._trust._COMPILED", set())
    return tmp_path / "cache" / "tapeline"


@pytest.fixture
def compiled(bundle: Path, theirs: Path, cache: Path) -> None:
    """Puts the module into this user's cache of compiled modules, so that the test need not wait for the compiler."""
    del bundle
    shutil.copytree(theirs / "tapeline" / "modules", cache / "modules")


@pytest.fixture
def copy(bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle, tmp_path / "copy"))


def answer(bundle: Path, **options: Any) -> str:
    with tapeline.load(bundle, **options) as model:
        return model.generate(_PROMPT, max_new_tokens=4).text


def _hashed(bundle: Path, *names: str) -> None:
    """Makes the description say that these files belong to the bundle, as whoever made the bundle can."""
    description = json.loads((bundle / MARK).read_text())
    description["sha256"] |= {name: sha256_of(bundle / name) for name in names}
    (bundle / MARK).write_text(json.dumps(description))


@pytest.mark.usefixtures("compiled")
def test_a_module_of_others_is_compiled_again(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one whose hash is right: what runs is what the text says."""
    expected = answer(copy, trust_compiled=True)
    assert capsys.readouterr().err == ""
    (copy / _VMFB).write_bytes(b"native code")
    _hashed(copy, _VMFB)
    assert answer(copy) == expected
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"compiling {MODULE} of {copy}: its {_VMFB} was not compiled by this user")
    assert "trust_compiled" in lines[0]
    with pytest.raises(InputError, match="cannot load the module"):
        answer(copy, trust_compiled=True)


def test_a_command_names_the_flag_that_runs_a_module_of_others(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / _VMFB).write_bytes(b"native code")
    _hashed(copy, _VMFB)
    capsys.readouterr()
    assert main(["generate", f"--bundle={copy}", f"--prompt={_PROMPT}", "--max_new_tokens=4"]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("compiling "))
    assert line.endswith(
        "was not compiled by this user (--trust_compiled runs it as it is, if you trust its origin) ..."
    )


def test_it_is_compiled_once(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(copy)

    def run(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the compiler runs")

    monkeypatch.setattr("run_iree.compiler._compile._run", run)
    assert answer(copy)


@pytest.mark.usefixtures("compiled")
def test_what_was_compiled_here_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    exported = tapeline.export("demo", tmp_path / "ours", verify="none", **_SIZES)
    (record,) = (cache / "trusted").glob("*.compiled")
    assert record.stem == sha256_of(exported.path / _VMFB)
    assert json.loads(record.read_text())["compiler"]
    assert record.stat().st_mode & 0o077 == 0
    assert (cache / "trusted").stat().st_mode & 0o077 == 0
    capsys.readouterr()
    moved = exported.path.rename(tmp_path / "moved")
    assert answer(moved)
    assert capsys.readouterr().err == ""


def test_without_a_compiler_one_flag_runs_it(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tapeline.bundle._compiled.compiler_version", lambda: "")
    with pytest.raises(
        MissingPackageError, match="pip install iree-base-compiler, or `trust_compiled` runs it as it is"
    ):
        answer(copy)
    flags = ["generate", f"--bundle={copy}", f"--prompt={_PROMPT}", "--max_new_tokens=4"]
    assert main(flags) == 2
    assert "--trust_compiled runs it as it is" in capsys.readouterr().err.replace("`", "")
    assert main([*flags, "--trust_compiled"]) == 0
    assert capsys.readouterr().out.strip()


def test_without_a_text_one_flag_runs_it(copy: Path) -> None:
    (copy / MODULE).unlink()
    with pytest.raises(InputError, match=r"has no module\.mlir to compile: `trust_compiled` runs it as it is"):
        answer(copy)
    assert answer(copy, trust_compiled=True)


def test_a_text_with_more_than_a_model_is_not_compiled(copy: Path) -> None:
    """``tapeline/bundle/_compiled_test.py`` has more of these."""
    text = (copy / MODULE).read_text().splitlines()
    (copy / MODULE).write_text("\n".join([*text[:1], "  hal.executable.source private @k {", *text[1:]]))
    _hashed(copy, MODULE)
    with pytest.raises(
        InputError, match=r"module\.mlir:2: 'hal.executable.source' is not part of a module that export"
    ):
        answer(copy)


@pytest.mark.usefixtures("compiled")
def test_flags_of_a_description_do_not_reach_the_compiler(copy: Path) -> None:
    description = json.loads((copy / MARK).read_text())
    del description["seals"]
    description["targets"]["llvm-cpu"]["flags"] += ["--iree-plugin=evil", "--iree-no-such-flag"]
    (copy / MARK).write_text(json.dumps(description))
    assert answer(copy)


@pytest.fixture
def cached(compiled: None) -> Path:
    del compiled
    return tapeline.cached_export("demo", verify="none", **_SIZES).path


def test_a_damaged_bundle_of_the_cache_is_made_again(
    cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file in turn is lost, cut, or changed in one bit. After the first two, a copy stands for the export."""
    whole = shutil.copytree(cached, tmp_path / "whole")

    def copied(model: Any, output: Path, **options: Any) -> tapeline.Bundle:
        del model, options
        shutil.copytree(whole, output, dirs_exist_ok=True)
        return tapeline.Bundle(output)

    lines: list[str] = []

    def again() -> Path:
        lines.clear()
        return tapeline.cached_export(
            "demo", verify="none", progress=lambda event: lines.append(event.text), **_SIZES
        ).path

    assert again() == cached
    assert not lines
    names = sorted(json.loads((cached / MARK).read_text())["sha256"])
    (cached / "stranger").write_text("an export into another directory would not remove it")
    for number, name in enumerate([MARK, MARK, *names, MARK]):
        path = cached / name
        if number % 3 == 0:
            path.unlink()
        elif number % 3 == 1:
            os.truncate(path, path.stat().st_size // 2)
        else:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        assert again() == cached
        if number:
            monkeypatch.setattr("tapeline.exporting._bundle_cache.export", copied)
        assert lines[0] == f"{path} in the cache is missing or damaged: exporting the model again ..."
        assert answer(cached)
    assert again() == cached
    assert not lines


@pytest.mark.parametrize("name", ["modules", "bundles", "locks", "trusted", "kernels"])
def test_a_cache_that_others_can_write_is_refused(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if name == "trusted":
        request.getfixturevalue("compiled")
    monkeypatch.delenv("TAPELINE_KERNEL_CACHE", raising=False)
    (cache / name).mkdir(parents=True, exist_ok=True)
    (cache / name).chmod(0o777)
    with pytest.raises(InputError, match=rf"{cache / name}: its mode is 0777, and all users can write it.*chmod"):
        tapeline.cached_export("demo", verify="none", **_SIZES)
