"""Flags of ``tapeline serve`` that are refused before anything is loaded."""

import json
from pathlib import Path

import pytest

from tapeline.command import main
from tests.product._bundles import export


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo"
    return export("demo", path, target=(), weights="none", num_layers=1, slots=2)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export("demo", tmp_path_factory.mktemp("plain") / "plain", target=(), weights="none", num_layers=1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--bundle=nowhere"], "nowhere"),
        (["--bundle=DEMO", "--bundle=DEMO"], "--bundle: two directories are called demo"),
        (["--bundle=DEMO", "--model=demo"], "give either --bundle or --model"),
        (["--bundle=DEMO", "--slots=3"], "--slots goes with --model"),
        (["--bundle=DEMO", "--dtype=bf16"], "options of an export go with --model"),
        (["--bundle=DEMO", "--api_key_file=EMPTY"], "no key in it: write one per line"),
        (["--bundle=DEMO", "--api_key_file=none"], "--api_key_file=none: cannot be read"),
        (["--bundle=DEMO", "--certificate=EMPTY"], "it cannot be used"),
        (["--bundle=DEMO", "--host=256.0.0.1"], "cannot listen there"),
        (["--bundle=DEMO", "--allowed_hosts=a b"], "--allowed_hosts: expected names such as chat.example.com"),
        (["--bundle=DEMO", "--cors_origins=example.com"], "--cors_origins: expected origins such as https://chat.exa"),
        (["--bundle=DEMO", "--prefix_cache=none"], "--prefix_cache"),
        (["--bundle=DEMO", "--bundle=PLAIN", "--served_model_name=a"], "--served_model_name goes with one model"),
        (["--bundle=DEMO", "--served_model_name=a,a"], "--served_model_name: expected different names"),
        (["--bundle=DEMO", "--port=99999999"], "--port=99999999 is out of range"),
        (["--bundle=DEMO", "--draft_tokens=2"], "--draft_tokens goes with --speculate or --draft"),
        (["--bundle=DEMO", "--draft_rows=2"], "--draft_rows goes with --speculate or --draft"),
        (["--bundle=PLAIN", "--speculate=prompt_lookup"], "plain has no slots, whose answers drafts could go with"),
        (["--bundle=PLAIN", "--bundle=DEMO", "--speculate=prompt_lookup"], "compiled for no target"),
        (["--bundle=DEMO", "--stall_seconds=0"], "--stall_seconds=0.0 is out of range"),
        (["--models_dir=nowhere"], "--models_dir=nowhere: cannot be read"),
        (["--models_dir=DEMO"], "no directory in it is a bundle"),
        (["--models_dir=PARENT", "--models_file=EMPTY"], "give either --models_dir or --models_file"),
        (["--models_dir=PARENT", "--model=demo"], "give either --models_dir or --model"),
        (["--models_dir=PARENT", "--bundle=DEMO"], "two models are called demo"),
        (["--models_dir=PARENT", "--served_model_name=a"], "goes with one model: give `aliases` in --models_file"),
        (["--models_dir=PARENT", "--models_memory=1KB"], "--models_memory=1000: demo needs"),
        (["--bundle=DEMO", "--models_memory=1GiB"], "--models_memory goes with --models_dir or --models_file"),
        (["--bundle=DEMO", "--models_idle_seconds=3"], "--models_idle_seconds goes with --models_dir"),
        (["--models_file=EMPTY"], "no model in it: add a table such as [models.small]"),
    ],
)
def test_flags_are_refused(
    flags: list[str], message: str, demo: Path, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"DEMO": demo, "PLAIN": plain, "EMPTY": tmp_path / "empty", "PARENT": demo.parent}
    paths["EMPTY"].touch()
    for name, path in paths.items():
        flags = [flag.replace(name, str(path)) for flag in flags]
    code = main(["serve", *flags])
    err = capsys.readouterr().err
    assert code == 2, err
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = [", "this is no TOML"),
        ("models = 3", "models: expected a table; found 3"),
        ("memory = 3\n[models.a]\nbundle = 'demo'", "memory: expected a text; found 3"),
        ("memory = 'big'\n[models.a]\nbundle = 'demo'", "memory=big: expected a size such as 512MiB"),
        ("idle = 3\n[models.a]\nbundle = 'demo'", "idle: unknown key; available: memory, idle_seconds, models"),
        ("[models]\na = 3", "models.a: expected a table; found 3"),
        ("[models.a]\npinned = true", "models.a.bundle is missing: expected a directory"),
        ("[models.a]\nbundle = 'demo'\npined = true", "models.a.pined: unknown key"),
        ("[models.a]\nbundle = 'demo'\npinned = 1", "models.a.pinned: expected true or false; found 1"),
        ("[models.a]\nbundle = 'demo'\nmax_waiting = 0", "models.a.max_waiting: expected a whole number above 0"),
        ("[models.a]\nbundle = 'demo'\nidle_seconds = -1", "models.a.idle_seconds: expected seconds, 0 or more"),
        ("[models.a]\nbundle = 'demo'\naliases = 'b'", "models.a.aliases: expected a list of texts; found 'b'"),
        ("[models.a]\nbundle = 'demo'\naliases = ['a']", "two models are called a"),
        ("[models.a]\nbundle = 'demo'\npinned = true\nidle_seconds = 3", "a pinned model stays loaded"),
        ("[models.a]\nbundle = 'demo'\ndraft_rows = 3", "models.a: draft_tokens and draft_rows go with speculate"),
        ("[models.a]\nbundle = 'nowhere'", "nowhere"),
        ("memory = '1KB'\n[models.a]\nbundle = 'demo'\npinned = true", "--models_memory=1000: a needs"),
    ],
)
def test_files_of_models_are_refused(text: str, message: str, demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = demo.parent / "models.toml"
    path.write_text(text)
    code = main(["serve", f"--models_file={path}"])
    err = capsys.readouterr().err
    assert code == 2, err
    assert message in err


@pytest.mark.parametrize(("error", "expected"), [(ZeroDivisionError("/secret"), 1), (MemoryError(), 1), (None, 2)])
def test_a_server_without_any_model_ends_and_says_why(
    error: Exception | None,
    expected: int,
    demo: Path,
    plain: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if error is not None:

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr("tapeline.server._loading.load_bundle", fail)
    code = main(["serve", f"--bundle={demo}", f"--bundle={plain}", "--port=0"])
    *lines, last, _ = capsys.readouterr().err.splitlines()  # the last line names docs/errors.md
    assert code == expected, last
    assert last.startswith("error: ")
    assert ("plain cannot be loaded" if error else "compiled for no target") in last
    failed = {entry["model"]: entry["error"] for entry in map(json.loads, lines) if entry["event"] == "load failed"}
    assert set(failed) == {"demo", "plain"}
    assert all(("cannot be loaded" if error else "compiled for no target") in reason for reason in failed.values())
