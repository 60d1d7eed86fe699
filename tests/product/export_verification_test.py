"""A bundle that does not compute what its model does is found, its place named, and nothing published."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_dag import Node
from compile_hlo import lower_module
from compile_hlo.emit import RULES, Emitter
from lang_core import VerificationError
from run_iree.archive import read_archive_index, write_archive
from tests.product import _exports
from tests.product._bundles import export, tree
from tests.product._exports import export_here

good, place = _exports.good, _exports.place


def test_a_wrong_lowering_is_found_and_not_published(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One weight is changed between the checkpoint and the archive, as a defect of ours would."""

    def tampered(path: Path, *arguments: Any, **options: Any) -> Any:
        written = write_archive(path, *arguments, **options)
        record = read_archive_index(path)["model.layers.0.mlp.up_proj.weight"]
        with open(path, "r+b") as file:
            file.seek(record.offset)
            file.write(np.full(64, 3.0, np.float32).tobytes())
        return written

    monkeypatch.setattr("tapeline.exporting._weights.write_archive", tampered)
    before = tree(place)
    done = export_here(capsys, "--target=llvm-cpu", "--num_layers=1", "--entry_points=forward", "--sequence=3")
    assert (done.code, done.out) == (3, "")
    assert "device local-task, entry point 'forward', result 'logits' disagrees with the eager context" in done.err
    assert "1e-04 is allowed for f32" in done.err
    assert "first divergence: op parameter, block model.layers.0, module model.layers.0.mlp.up_proj, " in done.err
    assert tree(place) == before


@pytest.mark.parametrize("flags", [["--target=llvm-cpu"], ["--target=none", "--verify=interpreter"]])
def test_a_wrong_rule_is_found_and_its_place_named(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    """The rule of one op leaves the op out: alike layers are written once, and the first one is named."""
    whole = RULES["logistic"]

    def broken(e: Emitter, node: Node) -> None:
        if node.path.startswith("model.layers."):
            e.alias(node, e.name(node.inputs[0]))
        else:
            whole(e, node)

    monkeypatch.setitem(RULES, "logistic", broken)
    before = tree(place)
    done = export_here(capsys, *flags, "--num_layers=2", "--entry_points=forward", "--sequence=3")
    assert (done.code, done.out) == (3, "")
    assert "entry point 'forward', result 'logits' disagrees with the eager context" in done.err
    assert "first divergence: op logistic, block model.layers.0, module model.layers.0.mlp, " in done.err
    assert "transformer_core/layers/_feed_forward.py:" in done.err
    assert tree(place) == before


def test_a_fault_that_shows_only_as_a_whole_is_said_so(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(points: Any, write: Callable[[str], object], form: Any, **options: Any) -> Any:
        return lower_module(
            points, lambda text: write(text.replace("stablehlo.sine", "stablehlo.cosine")), form, **options
        )

    monkeypatch.setattr("tapeline.exporting._predict.lower_module", wrong)
    done = export_here(capsys, "--target=llvm-cpu", "--num_layers=1", "--entry_points=forward", "--sequence=3")
    assert (done.code, done.out) == (3, "")
    assert "every tensor inside agrees when it is shown: the fault is in what is left out then" in done.err


def test_text_that_is_no_stablehlo_is_found_and_not_published(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(points: Any, write: Callable[[str], object], form: Any, **options: Any) -> Any:
        return lower_module(
            points, lambda text: write(text.replace("stablehlo.divide", "stablehlo.and")), form, **options
        )

    monkeypatch.setattr("tapeline.exporting._predict.lower_module", wrong)
    before = tree(place)
    done = export_here(capsys)
    assert (done.code, done.out) == (3, "")
    assert "module.mlir: no valid StableHLO" in done.err
    assert tree(place) == before


def test_explicit_verification_on_a_device_that_is_not_there(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeline.exporting._verify.available", lambda _: (False, "it is at sea"))
    options = {"target": ("vmvx",), "num_layers": 1, "sequence": 2, "entry_points": ("forward",)}
    with pytest.raises(VerificationError, match=r"no device could run the bundle \(vmvx: it is at sea\)"):
        export(place / "model", place / "new", verify="iree", **options)
    assert not (place / "new").exists()
    export(place / "model", place / "new", verify="auto", **options)
    said = capsys.readouterr().err
    assert "warning: not verified on vmvx: it is at sea" in said
    assert "\nverified on" not in said
    report = json.loads((place / "new" / "report.json").read_text())
    assert report["verification"] == [{"device": "vmvx", "skipped": "it is at sea"}]
