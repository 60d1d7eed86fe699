"""Whatever is wrong with the input: one clear error, exit 2, an earlier bundle untouched, nothing left behind."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import tapeline
from lang_core import CompileError, InputError
from tapeline.bundle import Bundle
from tapeline.demo import write_demo_checkpoint
from tests.goldens.cases import CASES
from tests.goldens.weights import stored_weights
from tests.product import _exports
from tests.product._bundles import export, tree
from tests.product._exports import export_here

good, place = _exports.good, _exports.place

_CASE = CASES["llama_gqa"]
_NORM = "model.norm.weight"
# What run_export calls, to be replaced by what fails.
_STEPS = "tapeline.exporting._export."


def _index(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = model / "model.safetensors.index.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def _config(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = model / "config.json"
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def _first(model: Path) -> Path:
    return model / "model-00001-of-00002.safetensors"


def _header(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = _first(model)
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[end:])


def _tensors(model: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    for path in (*model.glob("*.safetensors"), model / "model.safetensors.index.json"):
        path.unlink()
    weights = stored_weights(_CASE)
    change(weights)
    safetensors.numpy.save_file(weights, model / "model.safetensors")


def _no_weights(model: Path) -> None:
    for path in (*model.glob("*.safetensors"), model / "model.safetensors.index.json"):
        path.unlink()


def _entry(header: dict[str, Any]) -> dict[str, Any]:
    return header["model.embed_tokens.weight"]


def _overlap(header: dict[str, Any]) -> None:
    names = sorted((name for name in header if name != "__metadata__"), key=lambda n: header[n]["data_offsets"][0])
    begin, end = header[names[1]]["data_offsets"]
    header[names[1]]["data_offsets"] = [begin - 8, end - 8]


def _cut(model: Path) -> None:
    path = _first(model)
    path.write_bytes(path.read_bytes()[:-100])


# What is done to the model's directory, and what the error must name.
_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no_directory": (shutil.rmtree, r"there is no directory .*model: give a Hugging Face directory"),
    "no_weights": (_no_weights, r"model.*safetensors"),
    "shard_missing": (lambda m: _first(m).unlink(), r"model-00001-of-00002\.safetensors"),
    "shard_cut_off": (_cut, r"model-00001-of-00002\.safetensors"),
    "shard_empty": (lambda m: _first(m).write_bytes(b""), r"model-00001-of-00002\.safetensors"),
    "shard_garbage": (
        lambda m: _first(m).write_bytes(np.random.default_rng(0).bytes(900)),
        r"model-00001-of-00002\.safetensors",
    ),
    "shard_outside": (
        lambda m: _index(m, lambda i: i["weight_map"].update({_NORM: "../x"})),
        r"model\.safetensors\.index\.json.*\.\./x",
    ),
    "index_no_json": (
        lambda m: (m / "model.safetensors.index.json").write_text("{"),
        r"model\.safetensors\.index\.json",
    ),
    "index_lies": (
        lambda m: _index(m, lambda i: i["weight_map"].update({_NORM: "model-00001-of-00002.safetensors"})),
        r"model\.norm\.weight",
    ),
    "size_lies": (
        lambda m: _header(m, lambda h: _entry(h).update(shape=[101, 47])),
        r"model-00001-of-00002\.safetensors.*model\.embed_tokens\.weight",
    ),
    "offsets_beyond_the_end": (
        lambda m: _header(m, lambda h: _entry(h).update(data_offsets=[0, 10**12], shape=[10**10, 25])),
        r"model-00001-of-00002\.safetensors.*model\.embed_tokens\.weight",
    ),
    "offsets_overlap": (lambda m: _header(m, _overlap), r"model-00001-of-00002\.safetensors.*overlap"),
    "dtype_unknown": (
        lambda m: _header(m, lambda h: _entry(h).update(dtype="F31")),
        r"model-00001-of-00002\.safetensors.*F31",
    ),
    "tokenizer_of_a_format_that_is_not_read": (
        lambda m: (m / "spiece.model").write_bytes(b"\n"),
        r"has spiece\.model but no tokenizer\.json, .*; or move the tokenizer's files away, and export without them",
    ),
    "tokenizer_of_sentencepiece_damaged": (
        lambda m: (m / "tokenizer.model").write_bytes(b"\n"),
        r"tokenizer\.model is no SentencePiece model \(.*; or move the tokenizer's files away, and export without them",
    ),
    "tokenizer_damaged": (lambda m: (m / "tokenizer.json").write_text("{"), r"tokenizer\.json is damaged"),
    "tokenizer_config_damaged": (
        lambda m: [(m / name).write_text("{") for name in ("tokenizer.json", "tokenizer_config.json")],
        r"cannot read .*tokenizer_config\.json",
    ),
    "no_config": (lambda m: (m / "config.json").unlink(), r"config\.json"),
    "config_no_json": (lambda m: (m / "config.json").write_text("not {"), r"config\.json"),
    "config_a_list": (lambda m: (m / "config.json").write_text("[]"), r"config\.json"),
    "config_without_a_field": (
        lambda m: _config(m, lambda c: c.pop("num_hidden_layers")),
        r"config\.json.*num_hidden_layers",
    ),
    "config_of_a_wrong_type": (
        lambda m: _config(m, lambda c: c.update(hidden_size="many")),
        r"config\.json.*hidden_size",
    ),
    "architecture_unknown": (
        lambda m: _config(m, lambda c: c.update(architectures=["LamaForCausalLM"], model_type="lama")),
        r"LamaForCausalLM",
    ),
    "remote_code": (
        lambda m: _config(m, lambda c: c.update(architectures=["Own"], auto_map={"AutoModel": "code.py"})),
        r"Own",
    ),
    "key_missing": (
        lambda m: _tensors(m, lambda w: w.pop(_NORM)),
        r"'model\.norm\.weight' is missing",
    ),
    "key_misspelt": (
        lambda m: _tensors(m, lambda w: w.update({"model.norm.wieght": w.pop(_NORM)})),
        r"'model\.norm\.weight' is missing.*did you mean 'model\.norm\.wieght'",
    ),
    "key_surplus": (
        lambda m: _tensors(m, lambda w: w.update({"model.extra.weight": np.ones(3, np.float32)})),
        r"'model\.extra\.weight' in .*model\.safetensors",
    ),
    "shape_wrong": (
        lambda m: _tensors(m, lambda w: w.update({_NORM: np.ones(49, np.float32)})),
        r"model\.norm\.weight.*49",
    ),
    "weights_a_pickle": (
        lambda m: (_no_weights(m), (m / "pytorch_model.bin").write_bytes(b"\x80\x04")),
        r"safetensors",
    ),
}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_model(damage: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harm, message = _DAMAGES[damage]
    harm(place / "model")
    before = tree(place)
    done = export_here(capsys)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert re.search(message, errors[0])
    assert tree(place) == before


def test_a_new_output_is_not_even_begun(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "model" / "config.json").unlink()
    assert export_here(capsys, "--output=new/sub/bundle").code == 2
    assert not (place / "new").exists()


def test_a_full_disk(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit on a file's size stands in for it: the kernel refuses the write in the middle of the archive."""
    before = tree(place)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
        done = export_here(capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (done.code, done.out) == (2, "")
    assert "weights.irpa: cannot write the parameters: File too large; 192512 bytes are needed" in done.err
    assert "free some, or choose another directory" in done.err
    assert tree(place) == before


def test_a_disk_that_is_full_when_the_compiler_writes(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CompileError("cannot compile: exit status 1")

    monkeypatch.setattr("tapeline.exporting._compile.compile_module", refuse)
    before = tree(place)
    flags = ("--target=llvm-cpu", "--weights=none")
    done = export_here(capsys, *flags)
    assert done.code == 1
    assert "exit status 1" in done.err
    free = shutil.disk_usage(place)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    done = export_here(capsys, *flags)
    assert done.code == 2
    assert "the disk is full while writing" in done.err
    assert "module.llvm-cpu.vmfb (1000 bytes are free)" in done.err
    assert tree(place) == before


def test_no_permission_to_write(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(place)
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = export_here(capsys)
    assert done.code == 2
    assert "no permission to write in" in done.err
    assert tree(place) == before


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_an_output_that_is_something_else(kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = place / "taken"
    if kind == "file":
        taken.write_text("precious")
    elif kind == "link":
        taken.symlink_to(place / "bundle")
    else:
        taken.mkdir()
        (taken / "thesis.tex").write_text("precious")
    before = tree(place)
    done = export_here(capsys, "--output=taken")
    assert done.code == 2
    assert "choose another directory" in done.err
    assert tree(place) == before


def test_a_report_that_cannot_be_written_is_said_and_the_bundle_stands(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_STEPS + "check_options", lambda _: None)
    (place / "file").write_text("")
    done = export_here(capsys, "--report=file/report.json", "--verify=none", "--output=new")
    assert done.code == 2
    assert "new is complete and has it as report.json" in done.err
    assert Bundle(place / "new").config.entry_points


def test_a_killed_export_leaves_the_earlier_bundle_and_does_not_stop_the_next(place: Path) -> None:
    before = tree(place / "bundle")
    code = "import sys; from tapeline.command import main; sys.exit(main())"
    arguments = ("--model=model", "--output=bundle", "--sequence=4", "--max_sequence=8", "--target=llvm-cpu")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "export", *arguments], env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("compiling"):
            break
    partial = place / ".bundle.partial"
    assert (partial / "module.mlir").is_file()
    with pytest.raises(InputError, match="another export is writing there"):
        export(place / "model", place / "bundle", target=(), num_layers=1)
    process.kill()
    process.communicate()
    assert tree(place / "bundle") == before
    deadline = time.monotonic() + 60
    while True:  # its compiler may live on for a moment, but holds no lock
        try:
            export(place / "model", place / "bundle", target=(), num_layers=1, sequence=3)
            break
        except InputError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    assert tree(place / "bundle") != before
    assert not partial.exists()


def test_an_export_warns_of_a_misspelt_field(tmp_path: Path) -> None:
    write_demo_checkpoint(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["rope_thetta"] = config.pop("rope_theta", 10000.0)
    path.write_text(json.dumps(config))
    said: list[str] = []
    tapeline.export(
        tmp_path / "model",
        tmp_path / "bundle",
        target=(),
        verify="none",
        progress=lambda event: said.append(str(event)),
    )
    warnings = [text for text in said if "rope_thetta" in text]
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: ")
    assert "field 'rope_theta', which is, is absent and has its default" in warnings[0]
