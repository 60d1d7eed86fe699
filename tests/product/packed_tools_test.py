"""Commands on bundles of packed weights: dumps, comparisons, inspection, damage, encoders."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from lang_core import InputError, MappingWeights
from run_iree.archive import read_archive_index
from runtime.dump import read_dump
from tapeline.analysis.inspecting import facts, facts_text, parameters, parameters_text
from tapeline.bundle import ARCHIVE, Bundle
from tapeline.compare import PACKED, TOLERANCE
from tapeline.demo import write_demo_checkpoint
from tapeline.divergence import DeviceSide, check_alike, compare_runs, eager_side
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.packed_models import nmse
from tests.goldens.weights import unit_values
from tests.product._bundles import Finished, export, invoke
from transformer_core.models import load_model, stored_specs

_SIZES: dict[str, Any] = {"num_layers": 2, "sequence": 4, "max_sequence": 12, "quantize": "q4_0"}
_LONG = bool(os.environ.get("TAPELINE_LONG"))
_TRUNCATED = r"weights\.irpa"
Call = Callable[..., Finished]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    write_demo_checkpoint(folder / "model")
    return export(folder / "model", folder / "bundle", dump_tags=("*",) if _LONG else (), **_SIZES)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return lambda command, *flags: invoke(command, capsys, *flags)


def _generated(call: Call, bundle: Path, *flags: str) -> Finished:
    return call("generate", f"--bundle={bundle}", "--token_ids=0,34,444,268,378", "--max_new_tokens=3", *flags)


@pytest.mark.skipif(not _LONG, reason="a dump of packed weights compiles a second module: TAPELINE_LONG=1")
def test_a_dump_shows_what_the_bundle_computes(bundle: Path, call: Call, tmp_path: Path) -> None:
    """Inside of packed products as outside; and changes no token."""
    plain = _generated(call, bundle, f"--logits={tmp_path / 'plain.npy'}")
    shown = _generated(
        call, bundle, f"--dump={tmp_path / 'dump'}", "--dump_level=1", f"--logits={tmp_path / 'dump.npy'}"
    )
    assert (plain.code, shown.code, shown.out) == (0, 0, plain.out), shown.err
    dump = read_dump(tmp_path / "dump")
    assert {"model.layers.1.output", "logits"} <= {record.name for record in dump.records}
    logits = np.load(tmp_path / "plain.npy")
    dumped = np.stack([dump.load(r)[0] for r in dump.records if r.name == "logits"][-len(logits) :])
    np.testing.assert_array_equal(dumped, np.load(tmp_path / "dump.npy"))
    assert nmse(dumped, logits) < 1e-3


def test_compare_holds_a_bundle_to_the_eager_context(bundle: Path) -> None:
    """The bound is that of rounding x, not that of f32."""
    opened = Bundle(bundle)
    points, vocabulary = opened.config.entry_points, 512
    with opened.session("local-task") as session, eager_side(opened) as eager:
        comparison = compare_runs(DeviceSide(opened, session), eager, points, vocabulary, inside="never")
    assert comparison.first is None
    assert comparison.tolerance == TOLERANCE[PACKED]
    assert {"logits"} < {tensor.label.name for tensor in comparison.tensors}


def test_compare_finds_another_block(bundle: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    record = read_archive_index(copy / ARCHIVE)["model.layers.0.mlp.down_proj.weight"]
    with (copy / ARCHIVE).open("r+b") as file:
        file.seek(record.offset)
        stored = np.frombuffer(file.read(record.nbytes), np.uint8)
        file.seek(record.offset)
        file.write((stored.reshape(64, -1, 18) ^ np.array([0] * 2 + [0x77] * 16, np.uint8)).tobytes())
    sides = Bundle(copy), Bundle(bundle)
    check_alike(*sides)
    with sides[0].session("local-task") as left_session, sides[1].session("local-task") as right_session:
        left, right = DeviceSide(sides[0], left_session), DeviceSide(sides[1], right_session)
        compared = compare_runs(left, right, sides[0].config.entry_points, 512, inside="never")
    assert compared.first is not None
    assert compared.first.label.name.startswith("layers.1."), "the caches of the layer after it"


def test_inspect_names_the_encoding(bundle: Path) -> None:
    described = facts(Bundle(bundle), hashes=False)
    assert "q4_0 in i8[512,36]" in facts_text(described)
    assert described["parameters"]["dtypes"]["q4_0"]["count"] == 2 + 2 * 7
    assert set(described["parameters"]["dtypes"]) == {"q4_0", "f32"}
    assert "q4_0 in i8[64,90]" in parameters_text(parameters(Bundle(bundle), "*.0.mlp.down_proj.weight"))


@pytest.mark.parametrize("at", ["the last byte of the last", "a tenth", "the header"])
def test_a_truncated_archive_is_refused(bundle: Path, at: str, call: Call, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    with (copy / ARCHIVE).open("r+b") as file:
        end = max(record.offset + record.nbytes for record in read_archive_index(copy / ARCHIVE).values())
        file.truncate({"the last byte of the last": end - 1, "a tenth": end // 10, "the header": 20}[at])
    with pytest.raises(InputError, match=_TRUNCATED):
        Bundle(copy).session("local-task")
    done = _generated(call, copy)
    assert done.code == 2
    assert "weights.irpa" in done.err


def _encoder(name: str, directory: Path) -> None:
    """One of whole blocks, with random weights."""
    config = dict(ENCODER_CASES[name].config)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_hidden_layers": 1}
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config | sizes))
    specs = stored_specs(load_model(directory), MappingWeights({}))
    weights: dict[str, np.ndarray] = {}
    for key, spec in specs.items():
        scale = np.sqrt(3 / spec.shape[-1], dtype=np.float32) if spec.ndim > 1 else np.float32(0.1)
        weights[key] = unit_values(key, spec.shape, 3) * scale + np.float32(spec.ndim == 1 and key.endswith("weight"))
    safetensors.numpy.save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(("name", "unpacked"), [("bert", []), ("vit", ["class_token", "positions", "patches.weight"])])
def test_encoders_are_packed(name: str, unpacked: list[str], tmp_path: Path) -> None:
    _encoder(name, tmp_path / "model")
    runs = name == "bert" or _LONG
    how: dict[str, Any] = {"verify": "iree"} if runs else {"target": ()}
    bundle = export(tmp_path / "model", tmp_path / "bundle", quantize="q8_0", **how)
    report = json.loads((bundle / "report.json").read_text())
    assert report["parameters"]["packed"]["unpacked_parameters"] == unpacked
    if not runs:
        return
    assert {row["top1"] for row in report["verification"]} == {1.0}
    assert max(row["nmse"] for row in report["verification"]) < 1e-4
