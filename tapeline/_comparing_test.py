"""Bundles compared and inspected by Python: what the commands call."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import tapeline
from lang_core import ChoiceError
from run_iree.archive import read_archive_index

_TOKENS = np.array([[3, 1, 4, 1, 5]], np.int32)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"num_layers": 1, "sequence": 5, "entry_points": ("forward",)}
    return tapeline.export("demo", tmp_path_factory.mktemp("demo") / "bundle", verify="none", **sizes).path


@pytest.fixture(scope="module")
def damaged(bundle: Path) -> Path:
    """The bundle with other numbers in one weight."""
    copy = Path(shutil.copytree(bundle, bundle.parent / "damaged"))
    record = read_archive_index(copy / "weights.irpa")["model.layers.0.mlp.up_proj.weight"]
    with (copy / "weights.irpa").open("r+b") as file:
        file.seek(record.offset)
        file.write(np.full(64, 3.0, np.float32).tobytes())
    return copy


def test_a_bundle_agrees_with_its_model_and_with_the_checkpoint(bundle: Path) -> None:
    assert tapeline.compare_bundles(bundle).first is None
    comparison = tapeline.compare_bundles(str(bundle), model="demo", entry_point="forward", device="local-sync")
    assert (comparison.first, comparison.tolerance) == (None, 1e-4)
    assert {tensor.state for tensor in comparison.tensors} == {"agrees"}


def test_bundles_that_differ_are_compared_inside_unless_told_not_to(bundle: Path, damaged: Path) -> None:
    options = {"entry_point": "forward", "inputs": {"token_ids": _TOKENS}}
    outside = tapeline.compare_bundles(damaged, tapeline.Bundle(bundle), inside="never", **options)
    assert outside.first is not None
    assert outside.first.label.name == "logits"
    assert tapeline.compare_bundles(damaged, bundle, inside="never", tolerance=1e9, **options).first is None
    assert "module model.layers.0.mlp.up_proj" in tapeline.compare_bundles(damaged, bundle, **options).divergence()


def test_inputs_are_for_one_entry_point(bundle: Path) -> None:
    with pytest.raises(tapeline.InputError, match="`inputs` are for one entry point: name it with `entry_point`"):
        tapeline.compare_bundles(bundle, inputs={"token_ids": _TOKENS})
    with pytest.raises(tapeline.InputError, match="has no entry point 'forwrad'"):
        tapeline.compare_bundles(bundle, entry_point="forwrad")
    with pytest.raises(ChoiceError, match="inside: expected one of auto, always, never; found 'allways'"):
        tapeline.compare_bundles(bundle, inside="allways")  # type: ignore[arg-type]


def test_a_bundle_is_inspected(bundle: Path, damaged: Path) -> None:
    described = tapeline.inspect_bundle(bundle)
    assert [point["name"] for point in described["entry_points"]] == ["forward"]
    assert {entry["state"] for entry in described["files"]} == {"ok"}
    states = {entry["name"]: entry["state"] for entry in tapeline.inspect_bundle(damaged)["files"]}
    assert {name for name, state in states.items() if state != "ok"} == {"weights.irpa"}
    (norm,) = tapeline.list_parameters(bundle, "model.norm.*")
    assert norm["path"] == "model.norm.weight"
    with pytest.raises(tapeline.InputError, match=r"parameters=nrom: none of the \d+ parameters of .* matches"):
        tapeline.list_parameters(bundle, "nrom")


def test_a_model_is_inspected_before_its_export() -> None:
    described = tapeline.inspect_model("demo")
    assert described["config"]["model_type"] == "llama"
    (norm,) = tapeline.list_tensors("demo", "model.norm.*")
    assert norm["dtype"] == "f32"
    with pytest.raises(tapeline.InputError, match="model=nowhere: there is no directory or file nowhere"):
        tapeline.inspect_model("nowhere")


def test_the_graph_is_drawn(bundle: Path) -> None:
    assert ElementTree.fromstring(tapeline.draw_graph(bundle)).tag.endswith("svg")
    assert tapeline.draw_graph(tapeline.Bundle(bundle), "dot").startswith("digraph")
    with pytest.raises(ChoiceError, match="form: expected one of svg, dot, json; found 'png'"):
        tapeline.draw_graph(bundle, "png")  # type: ignore[arg-type]
