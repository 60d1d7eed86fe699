"""tools:inspect on bundles, whole and damaged."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from gguf import GGMLQuantizationType

from tapeline.bundle import MARK, Bundle
from tapeline.command import load_command
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.product import _bundles
from tests.product._bundles import Finished, export_case, greedy, invoke

Inspect = Callable[..., Finished]
compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")
_CASE = CASES["llama_gqa"]
_LAYERS = 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A verified bundle with its graph."""
    folder = tmp_path_factory.mktemp("inspect")
    return export_case(
        _CASE, folder, verify="auto", num_layers=_LAYERS, sequence=3, max_sequence=7, graph=("dot", "svg")
    )


@pytest.fixture
def bundle(whole: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(whole, tmp_path / "bundle"))


@pytest.fixture
def inspecting(capsys: pytest.CaptureFixture[str]) -> Inspect:
    return lambda bundle, *flags: invoke("inspect", capsys, f"--bundle={bundle}", *flags)


def test_every_flag_is_there() -> None:
    ours = set(load_command("inspect").FLAGS)
    assert ours == {"bundle", "model", "format", "parameters", "graph", "hashes", "output"}


def test_json_has_what_the_bundle_has(inspecting: Inspect, whole: Path) -> None:
    done = inspecting(whole, "--format=json")
    assert (done.code, done.err) == (0, "")
    shown = json.loads(done.out)
    described = json.loads((whole / MARK).read_text())
    for name in ("schema", "producer", "model", "entry_points", "kernels", "targets"):
        assert shown[name] == described[name]
    report = json.loads((whole / "report.json").read_text())
    assert (shown["verification"], shown["nodes"]) == (report["verification"], report["nodes"])
    assert {file["name"]: file["bytes"] for file in shown["files"]} == {
        path.name: path.stat().st_size for path in whole.iterdir()
    }
    assert {file["state"] for file in shown["files"]} == {"ok"}
    parameters = shown["parameters"]
    assert parameters["count"] == len(described["parameters"])
    assert parameters["bytes"] == report["parameters"]["bytes"] == parameters["dtypes"]["f32"]["bytes"]
    sizes = [parameter["bytes"] for parameter in parameters["largest"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == min(10, parameters["count"])


def test_text_says_it_to_a_person(inspecting: Inspect, whole: Path) -> None:
    done = inspecting(whole)
    assert (done.code, done.err) == (0, "")
    said = [" ".join(line.split()) for line in done.out.splitlines()]
    assert said[0] == f"{whole} (schema 2)"
    assert said[1].startswith("producer: tapeline ")
    assert "entry point prefill:" in said
    assert "argument IN token_ids i32[1,3]" in said
    assert "argument IN position i32[] scalar" in said
    cache = "layers.N.key_cache x 2 f32[1,3,7,8]"
    assert f"argument INOUT {cache} donated becomes result layers.N.key_cache" in said
    assert f"result INOUT {cache} was argument layers.N.key_cache" in said
    assert any(line.startswith("block.model.layers.N called 2 times (IN x 3, INOUT x 2, IN x ") for line in said)
    assert any(line.startswith("local-task prefill.layers.N.key_cache x 2 max abs ") for line in said)
    assert "devices: local-task, local-sync" in said
    assert any(line.startswith("module.mlir ") and line.endswith(" ok") for line in said)


def test_parameters_by_glob(inspecting: Inspect, whole: Path) -> None:
    done = inspecting(whole, "--parameters=model.layers.1.mlp.*", "--format=json")
    wanted = Bundle(whole).config.parameters
    assert json.loads(done.out) == [
        {"path": path, **fields, "bytes": 4 * fields["shape"][0] * fields["shape"][1]}
        for path, fields in wanted.items()
        if path.startswith("model.layers.1.mlp.")
    ]
    text = inspecting(whole, "--parameters=*.q_proj.weight").out.splitlines()
    assert [line.split()[0] for line in text] == [*(f"model.layers.{i}.self_attn.q_proj.weight" for i in (0, 1)), "2"]


def test_the_graph_is_that_of_the_export(inspecting: Inspect, whole: Path, tmp_path: Path) -> None:
    assert inspecting(whole, "--graph=dot").out == (whole / "graph.dot").read_text()
    done = inspecting(whole, "--graph=svg", f"--output={tmp_path / 'g.svg'}")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / "g.svg").read_bytes() == (whole / "graph.svg").read_bytes()
    assert ElementTree.parse(whole / "graph.svg").getroot().tag.endswith("svg")
    shown = json.loads(inspecting(whole, "--graph=json").out)
    kernels = {
        function["name"]: function["call_sites"] for function in shown["functions"] if function["kind"] != "entry_point"
    }
    assert kernels == {kernel.name: kernel.call_sites for kernel in Bundle(whole).config.kernels}
    prefill = shown["functions"][0]
    assert [(argument["name"], argument["count"]) for argument in prefill["arguments"]][3:] == [
        ("layers.N.key_cache", _LAYERS),
        ("layers.N.value_cache", _LAYERS),
    ]


def test_a_changed_file_is_named(inspecting: Inspect, bundle: Path) -> None:
    with (bundle / "weights.irpa").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)
        file.seek(-1, 2)
        file.write(bytes([last[0] ^ 1]))
    (bundle / "module.vhlo").unlink()
    (bundle / "notes.txt").write_text("mine")
    done = inspecting(bundle)
    assert done.code == 2
    assert done.err == (
        f"error: {bundle} is damaged: weights.irpa: changed since the export (sha256 differs); module.vhlo: missing: "
        f"export the bundle again\n"
        f"see: tapeline explain InputError, or docs/errors.md#inputerror\n"
    )
    states = {line.split()[0]: line.split()[-1] for line in done.out.splitlines() if line.startswith("  ")}
    assert (states["weights.irpa"], states["module.vhlo"], states["notes.txt"]) == ("differs", "missing", "listed")
    unread = inspecting(bundle, "--nohashes", "--format=json")
    assert "is damaged: module.vhlo: missing: export the bundle again\n" in unread.err
    assert {file["state"] for file in json.loads(unread.out)["files"]} == {"ok", "missing", "not listed", "not checked"}


def test_a_kernel_without_a_signature_is_said_so(inspecting: Inspect, bundle: Path) -> None:
    _edit(bundle / MARK, lambda f: f["kernels"][0].update(signature=None, reason=None))
    done = inspecting(bundle, "--nohashes")
    assert done.code == 0
    assert "block.model.layers.N called 2 times no signature: the version that wrote" in " ".join(done.out.split())


def test_without_signatures_of_kernels_everything_runs(bundle: Path, whole: Path) -> None:
    _edit(bundle / MARK, lambda f: f["kernels"][0].update(signature=None, reason=None))
    (ids, logits), (same, expected) = (greedy(folder, "local-sync", [1, 2], 3) for folder in (bundle, whole))
    assert ids == same
    assert logits.tobytes() == expected.tobytes()


def _edit(path: Path, change: Callable[[Any], None]) -> None:
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (MARK, lambda f: f.update(schema=7), "schema 7, this version reads schema 1 and 2: export the bundle again"),
        (MARK, lambda f: f.update(kernels=[{"name": "k"}]), "damaged ('call_sites'): export the bundle again"),
        (MARK, lambda f: f.update(targets={"vmvx": 3}), "damaged (targets.vmvx: expected an object; found 3)"),
        (MARK, lambda f: f["parameters"].update(w={"shape": [2]}), "damaged ('dtype'): export the bundle again"),
        (MARK, lambda f: f.update(parameters=[]), "damaged (parameters is not an object): export the bundle again"),
        ("report.json", lambda f: f.update(verification=[{"device": "vmvx"}]), "report.json: damaged ('entry_point')"),
    ],
)
def test_damaged_descriptions(
    inspecting: Inspect, bundle: Path, file: str, change: Callable[[Any], None], message: str
) -> None:
    _edit(bundle / file, change)
    done = inspecting(bundle)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--parameters=*.q_prj.*"], "parameters=*.q_prj.*: none of the"),
        (["--parameters=model.embed_tokens.weigth"], "did you mean 'model.embed_tokens.weight'"),
        (["--parameters=*", "--graph=dot"], "--graph and --parameters each ask for one thing: give one of them"),
        (["--graph=png"], "--graph=png: value should be one of <dot|svg|json>"),
        (["--output=nowhere/x"], "--output=nowhere/x: no file can be written there"),
    ],
)
def test_wrong_flags(inspecting: Inspect, whole: Path, flags: list[str], message: str) -> None:
    done = inspecting(whole, *flags)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_no_bundle_and_no_module(inspecting: Inspect, bundle: Path, tmp_path: Path) -> None:
    done = inspecting(tmp_path)
    assert (done.code, done.out) == (2, "")
    assert f"{tmp_path} is not a bundle: it has no {MARK}: export one first" in done.err
    (bundle / "module.mlir").write_text("module @m {\n}\n")
    done = inspecting(bundle, "--graph=json")
    assert (done.code, done.out) == (2, "")
    assert "module.mlir: contains no function: the file is damaged: export the bundle again" in done.err


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file with packed feed-forwards, some of which have to be unpacked."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    config = {**_CASE.config, "hidden_size": 64, "head_dim": 8, "num_attention_heads": 6}
    case = dataclasses.replace(_CASE, config=config)
    kinds = {"ffn_up": GGMLQuantizationType.Q8_0, "ffn_gate": GGMLQuantizationType.NVFP4}
    write_gguf(path, case, pack=lambda key, _: kinds.get(key.split(".")[-2]))
    return path


@pytest.fixture
def inspecting_models(capsys: pytest.CaptureFixture[str]) -> Inspect:
    return lambda model, *flags: invoke("inspect", capsys, f"--model={model}", *flags)


def test_a_gguf_file_before_its_export(inspecting_models: Inspect, gguf: Path) -> None:
    done = inspecting_models(gguf, "--format=json")
    assert (done.code, done.err) == (0, "")
    shown = json.loads(done.out)
    assert shown["source"] == {"format": "gguf", "architecture": "llama", "rope_layout": "interleaved"}
    assert shown["config"]["architectures"] == ["LlamaForCausalLM"]
    assert shown["tokenizer"] == []
    packed = shown["tensors"]["dtypes"]["q8_0"]
    assert packed == {"count": 2, "bytes": 2 * 80 * 64 // 32 * 34}
    cost = {"count": 2, "bytes": 2 * 80 * 64 // 64 * 36, "unpacked_bytes": 2 * 80 * 64 * 4}
    assert shown["dequantised"] == {"nvfp4": cost}
    listed = json.loads(inspecting_models(gguf, "--format=json", "--parameters=blk.1.ffn_up.*").out)
    assert listed == [{"path": "blk.1.ffn_up.weight", "dtype": "q8_0", "shape": [80, 64], "bytes": 80 * 68}]


def test_a_model_for_a_person(inspecting_models: Inspect, gguf: Path) -> None:
    said = inspecting_models(gguf).out
    assert said.startswith(f"{gguf} (format gguf, architecture llama, rope_layout interleaved)\nconfig.json:\n")
    assert "tokenizer: none\nparameters: " in said
    assert "packed tensors that an export unpacks:\n  nvfp4  2 tensors  5760 bytes  0.04 MiB in f32\n" in said
    assert "q8_0[80,64]" in inspecting_models(gguf, "--parameters=*up*").out
    demo = inspecting_models("demo").out
    assert demo.startswith("demo (format safetensors)\n")
    assert "tokenizer: tokenizer.json" in demo


def test_what_goes_with_a_model(inspecting_models: Inspect, inspecting: Inspect, gguf: Path, whole: Path) -> None:
    for done, message in (
        (
            inspecting_models(gguf, "--graph=dot"),
            "error: --graph is of a bundle: give --bundle, or export with --graph",
        ),
        (inspecting_models(gguf, "--parameters=blk.7.*"), "none of the 21 tensors of"),
        (inspecting_models(gguf, f"--bundle={whole}"), "error: give either --bundle or --model"),
    ):
        assert (done.code, done.out) == (2, "")
        assert message in done.err
