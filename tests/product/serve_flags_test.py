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
    ],
)
def test_flags_are_refused(
    flags: list[str], message: str, demo: Path, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"DEMO": demo, "PLAIN": plain, "EMPTY": tmp_path / "empty"}
    paths["EMPTY"].touch()
    for name, path in paths.items():
        flags = [flag.replace(name, str(path)) for flag in flags]
    code = main(["serve", *flags])
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
