"""Exports with LoRA adapters: merged weights, what the report and stderr say, refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from gguf import GGMLQuantizationType

from run_iree.archive import ArchiveWeights
from tapeline.bundle import ARCHIVE
from tapeline.hub import _server_testing
from tapeline.hub._server_testing import HubServer
from tests.goldens.adapter_cases import ADAPTERS
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.weights import write_checkpoint
from tests.product import _exports
from transformer_core.checkpoints import Adapter, SafetensorsCheckpoint
from transformer_core.models import load_model, weights_of

exporting, hub = _exports.exporting, _server_testing.hub

_FLAGS = ("--sequence=4", "--max_sequence=8", "--target=none")
_ONE, _TWO = (ADAPTERS / "two_ranks" / number for number in "01")


@pytest.fixture(name="user", autouse=True)
def _user(tmp_path: Path) -> Path:
    """A directory with ``model``, and the adapters ``one`` and ``two``."""
    (tmp_path / "model").mkdir()
    write_checkpoint(tmp_path / "model", CASES["llama_gqa"])
    shutil.copytree(_ONE, tmp_path / "one")
    shutil.copytree(_TWO, tmp_path / "two")
    return tmp_path


def report_of(bundle: Path) -> dict[str, Any]:
    return json.loads((bundle / "report.json").read_text())


def test_the_archive_has_the_merged_weights(user: Path, exporting: _exports.Export) -> None:
    flags = ("--model=model", "--adapter=one=0.7", "--adapter=two=0.3", *_FLAGS)
    done = exporting(*flags, "--output=bundle", "--target=llvm-cpu", "--verify=iree")
    assert done.code == 0, done.err
    assert "adapter one: LoRA of rank 3 on 14 modules, weight 0.7\n" in done.err
    with SafetensorsCheckpoint(user / "model") as checkpoint, ArchiveWeights(user / "bundle" / ARCHIVE) as archive:
        merged = weights_of(load_model(user / "model"), checkpoint, [Adapter(_ONE, 0.7), Adapter(_TWO, 0.3)])
        for key in archive.keys():  # noqa: SIM118
            np.testing.assert_array_equal(archive.read(key), merged.read(key))
        key = "model.layers.1.self_attn.q_proj.weight"
        assert np.abs(archive.read(key) - checkpoint.read(key)).max() > 0.05
    adapters = report_of(user / "bundle")["model"]["source"]["adapters"]
    assert [(record["name"], record["weight"], record["ranks"]) for record in adapters] == [
        ("one", 0.7, [3]),
        ("two", 0.3, [5]),
    ]
    assert set(adapters[0]["sha256"]) == {"adapter_config.json", "adapter_model.safetensors"}


def test_resume_notices_another_weight(user: Path, exporting: _exports.Export) -> None:
    flags = ("--model=model", "--output=bundle", *_FLAGS)
    assert exporting(*flags, "--adapter=one").code == 0
    first = (user / "bundle" / ARCHIVE).read_bytes()
    assert exporting(*flags, "--adapter=one=0.5", "--resume").code == 0
    assert (user / "bundle" / ARCHIVE).read_bytes() != first
    assert exporting(*flags, "--resume").code == 0
    assert "adapters" not in report_of(user / "bundle")["model"]["source"]


def test_a_dry_run_takes_adapters_and_the_first_layers(exporting: _exports.Export) -> None:
    flags = ("--model=model", "--adapter=one", "--output=bundle", "--num_layers=1", *_FLAGS)
    done = exporting(*flags, "--dry_run")
    assert done.code == 0, done.err
    assert exporting(*flags).code == 0


def _packed(_: str, shape: tuple[int, ...]) -> GGMLQuantizationType | None:
    return GGMLQuantizationType.Q8_0 if len(shape) == 2 and shape[0] < 100 and shape[1] % 32 == 0 else None


def test_merged_matrices_of_a_packed_file_are_unpacked_or_quantised_anew(
    user: Path, exporting: _exports.Export
) -> None:
    write_gguf(user / "packed.gguf", CASES["tinyllama_4x"], pack=_packed)
    module = "base_model.model.model.layers.1.self_attn.o_proj"
    tensors = {f"{module}.lora_A.weight": np.ones((2, 64)), f"{module}.lora_B.weight": np.ones((64, 2))}
    safetensors.numpy.save_file(
        {key: array.astype(np.float32) for key, array in tensors.items()}, user / "two" / "adapter_model.safetensors"
    )
    (user / "two" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 1}))
    flags = ("--model=packed.gguf", "--adapter=two", *_FLAGS)
    done = exporting(*flags, "--output=bundle")
    assert done.code == 0, done.err
    parameters = report_of(user / "bundle")["parameters"]
    assert parameters["dequantised"] == {"q8_0": 1}
    assert parameters["dequantised_bytes"] == {"stored": 64 * 64 // 32 * 34, "unpacked": 4 * 64 * 64}
    assert parameters["packed"]["kept"] == parameters["packed"]["matrices"] > 1
    assert "packed weights (1 q8_0 tensors) are dequantised: the bundle holds them unpacked" in done.err
    again = exporting(*flags, "--output=again", "--quantize=q8_0")
    assert again.code == 0, again.err
    assert report_of(user / "again")["parameters"]["packed"]["requantised"] == {"q8_0": 1}
    assert "1 q8_0 matrices are packed otherwise in the checkpoint, and quantised a second time" in again.err


def test_a_warning_names_another_base_model(user: Path, exporting: _exports.Export) -> None:
    config = json.loads((user / "one" / "adapter_config.json").read_text())
    for base, warned in (("org/other", True), ("elsewhere/Model", False)):
        (user / "one" / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": base}))
        done = exporting("--model=model", "--adapter=one", "--output=bundle", *_FLAGS)
        assert done.code == 0, done.err
        assert (f"was trained on '{base}', the model is 'model'" in done.err) is warned


def test_an_adapter_may_be_on_the_hub(user: Path, exporting: _exports.Export, hub: HubServer) -> None:
    hub.add("org/lora", {path.name: path.read_bytes() for path in (user / "one").iterdir()})
    done = exporting("--model=model", "--adapter=org/lora=0.5", "--output=bundle", *_FLAGS)
    assert done.code == 0, done.err
    (record,) = report_of(user / "bundle")["model"]["source"]["adapters"]
    assert (record["name"], record["weight"], record["hub"]["repository"]) == ("org/lora", 0.5, "org/lora")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--adapter=one=x"], "--adapter=one=x: expected a directory or a name of the hub, and =WEIGHT if it is not 1"),
        (["--adapter=one=nan"], "--adapter=one=nan: expected a directory"),
        (["--adapter=three"], "--adapter=three: there is no directory or file three: give a directory of PEFT"),
        (["--adapter=model"], "adapter_config.json: cannot be read"),
        (["--adapter=one", "--weights=none"], "--adapter=one: is merged into weights, and --weights=none reads none"),
        (["--adapter=gpt2"], "the model has no tensor for 'transformer.h.0.attn.c_attn.weight'"),
    ],
)
def test_refusals_are_one_error(user: Path, exporting: _exports.Export, flags: list[str], message: str) -> None:
    shutil.copytree(ADAPTERS / "columns" / "0", user / "gpt2")
    done = exporting("--model=model", "--output=bundle", *_FLAGS, *flags)
    assert (done.code, done.err.count("error: ")) == (2, 1)
    assert message in done.err.replace(f"{user}/", "")
    assert not (user / "bundle").exists()
