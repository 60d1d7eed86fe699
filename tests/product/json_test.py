"""Results of commands as JSON documents: what text and files say, on stdout, and nothing else there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from tests.product._bundles import invoke

Ask = Callable[..., Any]
_PROMPT = "It was the best of times,"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tapeline.export("demo", tmp_path_factory.mktemp("json") / "demo", sequence=8, max_sequence=40).path


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command and reads its document."""

    def asked(command: str, *flags: str) -> Any:
        done = invoke(command, capsys, *flags, "--format=json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    return asked


def test_an_export(ask: Ask, tmp_path: Path) -> None:
    flags = (f"--output={tmp_path / 'out'}", "--target=none", "--verify=parse", f"--report={tmp_path / 'copy.json'}")
    document = ask("export", *flags)
    report = json.loads((tmp_path / "copy.json").read_text())
    assert (document["bundle"], document["report"]) == (str(tmp_path / "out"), str(tmp_path / "out" / "report.json"))
    assert document["seconds"]["lower"] == report["phases"]["lower"]["seconds"]
    assert document["parameters"]["used"] == len(report["parameters"]["used"])
    assert (document["nodes"], document["verification"]) == (report["nodes"], report["verification"])


def test_a_dry_run(ask: Ask, tmp_path: Path) -> None:
    document = ask("export", f"--output={tmp_path / 'out'}", "--dry_run", f"--report={tmp_path / 'copy.json'}")
    assert document["bundle"] == str(tmp_path / "out")
    assert {"predicted": document["predicted"]} == json.loads((tmp_path / "copy.json").read_text())


def test_an_answer_and_its_figures(ask: Ask, bundle: Path, tmp_path: Path) -> None:
    flags = (f"--bundle={bundle}", f"--prompt={_PROMPT}", "--max_new_tokens=6")
    document = ask("generate", *flags, f"--stats={tmp_path / 'stats.json'}")
    with tapeline.load(bundle) as model:
        answer = model.generate(_PROMPT, max_new_tokens=6)
    expected = {"text": answer.text, "token_ids": answer.token_ids, "ended": "length", "finish_reason": "length"}
    assert document["answers"] == [expected]
    assert document["stats"] == json.loads((tmp_path / "stats.json").read_text())
    assert document["stats"]["new_tokens"] == 6


def test_results_of_an_entry_point(ask: Ask, bundle: Path, tmp_path: Path) -> None:
    point = tapeline.Bundle(bundle).entry_point("prefill")
    inputs = []
    for argument in point.arguments:
        file = tmp_path / f"{argument.name}.npy"
        np.save(file, np.zeros(argument.spec.shape, argument.spec.dtype.numpy))
        inputs.append(f"--input={argument.name}={file}")
    document = ask(
        "run", f"--bundle={bundle}", "--entry_point=prefill", *inputs, f"--output_dir={tmp_path / 'results'}"
    )
    assert document["entry_point"] == "prefill"
    assert [result["name"] for result in document["results"]] == [result.name for result in point.results]
    for result in document["results"]:
        array = np.load(result["file"])
        assert (result["dtype"], result["shape"]) == (str(array.dtype), list(array.shape))


def test_parameters(ask: Ask, bundle: Path) -> None:
    document = ask("inspect", f"--bundle={bundle}", "--parameters=*")
    assert document == tapeline.list_parameters(tapeline.Bundle(bundle), "*")
