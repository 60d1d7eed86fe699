"""Exports of a model in which some layers keep a state in place of a cache."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from runtime.dump import read_dump
from tests.goldens.cases import CASES
from tests.goldens.weights import stored_weights, write_checkpoint
from tests.product._bundles import export, export_case, invoke

CASE = CASES["qwen3_next_mixed_4x"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    write_checkpoint(directory, CASE)
    return directory


def _export(model: Path, output: Path, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """kernel_config.json and report.json."""
    export(model, output, **{"sequence": 3, "max_sequence": 9, "target": (), "dtype": "bf16", **changes})
    config, report = (json.loads((output / f"{name}.json").read_text()) for name in ("kernel_config", "report"))
    return config, report


def test_states_are_donated_as_caches_are(model: Path, tmp_path: Path) -> None:
    config, _ = _export(model, tmp_path / "bundle")
    wanted = {
        "layers.0.conv_state": ("bf16", [1, 2, 60]),
        "layers.0.delta_state": ("f32", [1, 3, 6, 8]),
        "layers.1.key_cache": ("bf16", [1, 1, 9, 8]),
        "layers.1.value_cache": ("bf16", [1, 1, 9, 8]),
        "layers.2.conv_state": ("bf16", [1, 2, 60]),
        "layers.2.delta_state": ("f32", [1, 3, 6, 8]),
    }
    for entry_point in config["entry_points"]:
        kept = [argument for argument in entry_point["args"] if argument["donated"]]
        assert {argument["name"]: (argument["dtype"], argument["shape"]) for argument in kept} == wanted
        for argument in kept:
            assert argument["direction"] == "INOUT", argument
            assert argument["alias_result"] == argument["name"]


def test_gates_stay_f32_and_a_second_head_is_ignored(model: Path, tmp_path: Path) -> None:
    weights = stored_weights(CASE) | {"mtp.fc.weight": np.zeros((4, 3), np.float32)}
    safetensors.numpy.save_file(weights, model / "model.safetensors")
    config, report = _export(model, tmp_path / "bundle")
    assert report["parameters"]["ignored"] == ["mtp.fc.weight"]
    dtypes = {
        path.rpartition("linear_attn.")[2]: parameter["dtype"] for path, parameter in config["parameters"].items()
    }
    assert (dtypes["A_log"], dtypes["dt_bias"], dtypes["conv1d.weight"]) == ("f32", "f32", "bf16")


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="a dump of a hybrid's inside: TAPELINE_LONG=1")
def test_the_first_layer_alone_has_no_cache_and_a_dump_shows_the_inside_of_a_gated_delta_net(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In prefill and each decoded token; the state that is shown is the one that is kept."""
    bundle = tmp_path / "bundle"
    alone: dict[str, Any] = {"num_layers": 1, "target": ("llvm-cpu",), "dtype": "f32"}
    config, _ = _export(model, bundle, verify="auto", dump_tags=("*",), **alone)
    kept = [argument["name"] for argument in config["entry_points"][1]["args"] if argument["donated"]]
    assert kept == ["layers.0.conv_state", "layers.0.delta_state"]
    flags = (f"--bundle={bundle}", "--token_ids=1,2,3,4", "--max_new_tokens=2", f"--dump={tmp_path / 'dump'}")
    done = invoke("generate", capsys, *flags, "--dump_level=2")
    assert done.code == 0, done.err
    dump = read_dump(tmp_path / "dump")
    inside = ("q", "k", "v", "g", "beta", "heads", "state", "gate", "output")
    for step in sorted({record.step for record in dump.records}):
        shown = {record.name: record for record in dump.records if record.step == step and record.when != "before"}
        records = [shown[f"model.layers.0.linear_attn.{name}"] for name in inside]
        assert all(record.nan == record.inf == 0 for record in records)
        assert (records[0].line or "").startswith("transformer_core/layers/_gated_delta_net.py:")
        np.testing.assert_array_equal(
            dump.load(records[inside.index("state")]), dump.load(shown["layers.0.delta_state"])
        )


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="a hybrid in bf16, verified: TAPELINE_LONG=1")
def test_16_bit_results_that_rounding_drives_apart_are_compared_with_f32(tmp_path: Path) -> None:
    """Norms of small vectors and the choice of experts make rounding errors large, in the eager context too."""
    sizes: dict[str, Any] = {"num_layers": 2, "sequence": 3, "entry_points": ("forward",)}
    bundle = export_case(CASES["qwen3_next"], tmp_path, dtype="bf16", verify="iree", **sizes)
    rows = json.loads((bundle / "report.json").read_text())["verification"]
    far = [row for row in rows if row["max_rel"] > 3e-2]
    assert far
    for row in far:
        assert row["to_f32"]["nmse"] < 2 * row["eager_to_f32"]["nmse"]
    assert all("to_f32" not in row for row in rows if row not in far)
