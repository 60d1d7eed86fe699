"""Plans of devices: --dry_run with --mesh and --hardware."""

import json
from pathlib import Path
from typing import Any

import pytest

import tapeline
from lang_core import InputError, TensorSpec
from tapeline.exporting import prediction_text
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint
from tests.product import _exports
from tests.product._bundles import stablehlo_here
from tests.product._exports import Export

exporting = _exports.exporting

_SIZES: dict[str, Any] = {"sequence": 4, "max_sequence": 8, "target": (), "verify": "none", "batch": 2}
_OWN = (
    "name = 'own'\ndevices = 2\nmemory_bytes = 1e6\nmemory_bandwidth = 1e9\nlink_bandwidth = 1e8\nflops = {f32 = 1e9}\n"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    write_checkpoint(directory, CASES["llama_mha"])
    return directory


@pytest.mark.parametrize("quantize", ["none", "q8_0"])
def test_bytes_of_a_plan_are_those_of_the_bundle(tmp_path: Path, model: Path, quantize: str) -> None:
    options = {**_SIZES, "mesh": "tp=2", "quantize": quantize, "weights": "none"}
    config = json.loads((model / "config.json").read_text()) | {"hidden_size": 64, "intermediate_size": 128}
    (model / "config.json").write_text(json.dumps(config))  # whole blocks on each device
    plan = tapeline.predict_export(model, tmp_path / "bundle", **options)["devices"]
    with stablehlo_here():
        bundle = tapeline.export(model, tmp_path / "bundle", **options)
    mesh = bundle.config.mesh
    assert mesh is not None
    held = plan["asked"]["bytes_per_device"]
    sizes = {name: TensorSpec(tuple(p["shape"]), p["dtype"]) for name, p in bundle.config.parameters.items()}
    local = {name: mesh.axes.local_shape(spec.shape, mesh.parameters[name]) for name, spec in sizes.items()}
    assert held["weights"] == sum(TensorSpec(shape, sizes[name].dtype).nbytes for name, shape in local.items())
    assert (held["packed_weights"] > 0) == (quantize != "none")
    caches = [a for a in bundle.entry_point("decode").arguments if a.donated]
    assert sum(held["caches"].values()) == sum(
        TensorSpec(mesh.axes.local_shape(a.spec.shape, a.axes or ()), a.spec.dtype).nbytes for a in caches
    )


def test_times_and_the_largest_batch_are_told(exporting: Export, tmp_path: Path, model: Path) -> None:
    (tmp_path / "own.toml").write_text(_OWN)
    flags = [f"--model={model}", "--dry_run", "--mesh=tp=2", "--hardware=own.toml", "--report=plan.json"]
    done = exporting(*flags, "--sequence=4", "--max_sequence=8", "--target=none")
    assert done.code == 0
    assert str(tmp_path / f"{model.name}-bundle") not in done.out
    assert done.err.endswith(f"nothing was written; without it, the bundle is {tmp_path / model.name}-bundle\n")
    plan = json.loads((tmp_path / "plan.json").read_text())["predicted"]["devices"]
    assert (plan["mesh"], plan["fits"], plan["hardware"]["name"]) == ({"tp": 2}, True, "own")
    assert plan["largest_batch"]["batch"] > 1
    assert plan["largest_batch"]["bytes_per_device"]["total"] <= 1e6
    assert "mesh tp=2 on own: 2 devices\n" in done.out
    assert f"largest batch: {plan['largest_batch']['batch']}\n" in done.out
    names = [entry["name"] for entry in plan["asked"]["entry_points"]]
    assert names == ["prefill", "decode"]
    assert sorted(tmp_path.iterdir()) == [model, tmp_path / "own.toml", tmp_path / "plan.json"]


def test_without_a_mesh_it_is_one_device_and_without_both_there_is_no_plan(tmp_path: Path, model: Path) -> None:
    one = tapeline.predict_export(model, tmp_path / "bundle", hardware="h100-sxm", **_SIZES)
    assert one["devices"]["devices"] == 1
    assert "decode: devices exchange nothing" in prediction_text(one)
    assert "devices" not in tapeline.predict_export(model, tmp_path / "bundle", **_SIZES)


def test_encoders_have_plans_too(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write_checkpoint(model, CASES["llama_mha"])
    options = {**_SIZES, "entry_points": ["forward"], "mesh": "tp=2"}
    plan = tapeline.predict_export(model, tmp_path / "bundle", hardware="l4", **options)["devices"]
    assert plan["asked"]["bytes_per_device"]["caches"] == {}
    assert plan["asked"]["entry_points"][0]["tokens"] == 2 * 4


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hardware=h100-sxm"], "hardware: figures of a device are for predictions: add --dry_run, or leave"),
        (["--dry_run", "--hardware=h100"], "--hardware=h100: not found; available: a100-80gb, epyc-9654"),
        (["--dry_run", "--hardware=bad.toml"], "--hardware=bad.toml: devices = 0: expected a whole number above 0"),
        (["--dry_run", "--hardware=l4", "--mesh=tp=2", "--slots=4"], "--slots=4 with a plan of devices: "),
        (["--dry_run", "--hardware=rtx-4090", "--mesh=tp=2"], "mesh tp=2 has 2 devices, and NVIDIA GeForce RTX 4090"),
        (["--dry_run", "--mesh=tp=2,dp=2"], "batch=1 sequences cannot be divided among dp=2"),
    ],
)
def test_what_is_wrong_is_one_error(
    exporting: Export, tmp_path: Path, model: Path, flags: list[str], message: str
) -> None:
    (tmp_path / "bad.toml").write_text(_OWN.replace("devices = 2", "devices = 0"))
    done = exporting(f"--model={model}", "--sequence=4", "--max_sequence=8", "--target=none", *flags)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("error: ") == 1


def test_a_relative_hardware_file_is_beside_the_user(tmp_path: Path, model: Path) -> None:
    (tmp_path / "own.toml").write_text(_OWN)
    told = tapeline.predict_export("model", "bundle", base=tmp_path, hardware="own.toml", **_SIZES)
    assert told["devices"]["hardware"]["name"] == "own"
    with pytest.raises(InputError, match=r"hardware=other\.toml: not found"):
        tapeline.predict_export(model, tmp_path / "bundle", hardware="other.toml", **_SIZES)
