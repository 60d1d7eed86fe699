"""A short, deterministic run of every fuzz target: its seeds, the findings of the past, and a number of new inputs."""

import os
from pathlib import Path

import pytest

from tests.fuzz._driver import run_target
from tests.fuzz.targets import NAMES

# TAPELINE_LONG=1 asks for all of them; the campaign of tools:fuzz makes more.
_PART = 1 if os.environ.get("TAPELINE_LONG") else 10
# Inputs of targets that take more than a millisecond each.
_RUNS = {
    "bundles": 300,
    "chat_templates": 300,
    "configs": 300,
    "grammars": 200,
    "quantization": 300,
    "renderings": 150,
    "routes": 400,
    "tokenizer_folders": 200,
    "tokenizer_json": 500,
    "training_lines": 1000,
}
_MOST = 2000


@pytest.mark.parametrize("name", NAMES)
def test_a_target_has_no_findings(tmp_path: Path, name: str) -> None:
    runs = max(30, _RUNS.get(name, _MOST) // _PART)
    report = run_target(name, tmp_path, runs=runs)
    print(report)
    texts = [path.with_name(f"{path.name}.txt") for path in report.findings]
    assert not report.findings, "\n".join(text.read_text() if text.exists() else report.log for text in texts)
    assert report.executions >= runs
    assert report.accepted > 0, "no input gets past the parser"
    assert report.edges > 0
