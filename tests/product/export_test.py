"""The contract of tools:export, on the demo model and golden cases."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tapeline.command import load_command
from tests.product import _exports
from tests.product._exports import FAST, Export

demo, exporting = _exports.demo, _exports.exporting


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_every_flag_of_the_contract_is_there() -> None:
    promised = (
        "model output entry_points batch sequence max_sequence dtype quantize weights lowering num_layers target "
        "verify reference_python positions window_caches kv_cache verify_tokens dry_run max_memory resume report "
        "dump_tags graph stablehlo_target_version tune kernels locations activations adapter slots pages page_tokens "
        "mesh adapters adapter_rank hardware overwrite format target_bpw max_loss calibration"
    )
    ours = set(load_command("export").FLAGS)
    assert ours == set(promised.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quantize=q9"], "--quantize=q9: unknown: known are none, stored, auto, q8_0, q4_0"),
        (
            ["--quantize=q4_k_m"],
            "--quantize=q4_k_m: is a mix of encodings that llama.cpp chooses: give --quanti",
        ),
        (["--quantize=stored"], "no matrix of the checkpoint is packed as q8_0, q4_0, q4_1, "),
        (
            ["--quantize=stored", "--weights=none"],
            "--weights=none reads no checkpoint: choose --quantize=q8_0, q4_0, q4_1, q5_0, ",
        ),
        (["--max_memory=lots"], "--max_memory=lots: expected a size such as 512MiB, 1GiB or 2.5GB"),
        (["--stablehlo_target_version=new"], "--stablehlo_target_version=new: expected a version such as 1.0.0"),
        (["--max_memory=0"], "--max_memory=0: expected a size"),
        (["--max_memory=-1GiB"], "--max_memory=-1GiB: expected a size"),
        (["--max_memory=100KiB"], "--max_memory=0.10 MiB: the phase '"),
        (["--max_memory=100KiB", "--dry_run"], "--max_memory=0.10 MiB: the phase '"),
        (["--dump_tags=layers.*,"], "--dump_tags=layers.*,: expected names or globs, each once"),
        (
            ["--dump_tags=*.outptu", "--dry_run"],
            "tags '*.outptu': no tensor of the model has such a name; did you mean",
        ),
        (["--graph=dott"], "--graph=dott: unknown 'dott': known are dot, svg, json; did you mean 'dot'?"),
        (["--sequence=dynamic"], "--sequence=dynamic: entry points of dynamic length are not supported yet"),
        (["--sequence=0"], "--sequence=0: expected a number of tokens above 0"),
        (["--sequence=many"], "--sequence=many: expected a number of tokens above 0"),
        (["--model=some/model.gguf"], "--model=some/model.gguf: there is no directory or file"),
        (["--model=nowhere"], "--model=nowhere: there is no directory or file"),
        (
            ["--entry_points=prefil"],
            "unknown 'prefil': known are forward, prefill, decode, verify; did you mean 'prefill'?",
        ),
        (["--entry_points=decode,decode"], "name each of forward, prefill, decode, verify at most once"),
        (["--target=llvm"], "--target=llvm: unknown 'llvm': known are none, llvm-cpu, vmvx"),
        (["--target=none,vmvx"], "--target=none,vmvx: none goes with no other target"),
        (["--target="], "--target=: the value is empty"),
        (["--batch=0"], "--batch=0"),
        (["--num_layers=0"], "--num_layers=0"),
        (["--num_layers=9", "--target=none"], "9"),
        (["--max_sequence=5", "--sequence=6"], "sequence: expected at most max_sequence (5); found 6"),
        (["--dtype=f64"], "--dtype=f64: value should be one of <f32|bf16|f16>"),
        (["--weights=some"], "--weights=some: value should be one of <external|inline|none>"),
        (["--lowering=some"], "--lowering=some: value should be one of <streaming|buffered>"),
        (["--verify=some"], "--verify=some: value should be one of <auto|none|parse|interpreter|iree|jax|reference>"),
        (["--verify=iree", "--weights=none"], "--weights=none gives none: choose --verify=parse"),
        (["--verify=iree", "--target=none"], "--target=none gives none: name a target"),
        (["--report=."], "no file can be written there"),
        (["--ouput=x"], "unknown flag --ouput; did you mean --output?"),
        (["x"], "--model=x: there is no directory or file"),
        (["x", "y"], "unexpected arguments y"),
    ],
)
def test_what_the_user_got_wrong_is_one_error_and_no_file(
    exporting: Export, arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = exporting(*arguments)
    assert done.code == 2
    assert message in done.err
    assert done.err.count("error: ") == 1
    assert "Traceback" not in done.err
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_bundle_has_the_files_of_the_contract(demo: Path) -> None:
    assert sorted(path.name for path in demo.iterdir()) == [
        "config.json",
        "generation_config.json",
        "kernel_config.json",
        "module.llvm-cpu.vmfb",
        "module.mlir",
        "module.vhlo",
        "report.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "weights.irpa",
    ]
    assert [path.name for path in demo.parent.iterdir() if path.name.startswith(".")] == []
    assert (demo.parent / "reports" / "demo.json").read_bytes() == (demo / "report.json").read_bytes()


def test_stdout_ends_with_the_path_and_progress_goes_to_stderr(exporting: Export, tmp_path: Path) -> None:
    done = exporting(*FAST, "--output=a/b", "--target=none", "--verify=parse")
    assert (done.code, done.out) == (0, f"{tmp_path / 'a' / 'b'}\n")
    assert "weights: " in done.err
    assert "verifying ..." in done.err
    assert not list((tmp_path / "a" / "b").glob("*.vmfb"))


def test_kernel_config_is_of_schema_2(demo: Path) -> None:
    config = _json(demo / "kernel_config.json")
    assert config["schema"] == 2
    assert {"entry_points", "kernels", "model", "producer", "sha256"} <= set(config)
    prefill, decode = config["entry_points"]
    cache = {"kind": "tensor", "direction": "INOUT", "dtype": "f32", "shape": [1, 2, 20, 16], "donated": True}
    cache |= {"effective": "INOUT", "guarded": False, "in_place": True, "bounds": None}
    scalar = {"kind": "scalar", "direction": "IN", "dtype": "i32", "shape": [], "alias_result": None, "donated": False}
    scalar |= {"effective": "IN", "guarded": False, "in_place": False, "bounds": None}
    names = ("layers.0.key_cache", "layers.0.value_cache")
    assert prefill["name"] == "prefill"
    assert prefill["args"] == [
        scalar | {"name": "token_ids", "kind": "tensor", "shape": [1, 6]},
        scalar | {"name": "position", "bounds": [0, 14]},
        scalar | {"name": "last", "bounds": [0, 5]},
        *(cache | {"name": name, "alias_result": name} for name in names),
    ]
    results = [
        {"name": "logits", "direction": "OUT", "dtype": "f32", "shape": [1, 512], "alias_arg": None},
        *(
            {"name": name, "direction": "INOUT", "dtype": "f32", "shape": [1, 2, 20, 16], "alias_arg": name}
            for name in names
        ),
        {"name": "next_ids", "direction": "OUT", "dtype": "i32", "shape": [1], "alias_arg": None},
    ]
    assert prefill["results"] == results
    assert decode["name"] == "decode"
    assert [argument["name"] for argument in decode["args"]] == ["token_ids", "position", *names]
    assert decode["args"][0]["shape"] == [1, 1]
    assert decode["results"] == results
    assert config["model"]["family"] == "LlamaForCausalLM"
    assert config["model"]["layers"] == 1
    assert config["model"]["tied"] is False
    assert config["model"]["rope"]["layout"]
    assert config["model"]["rope"]["scaling"]["type"]
    assert {"tapeline", "python", "iree-base-compiler", "jaxlib"} <= set(config["producer"])


def test_kernels_say_what_they_do_with_their_arguments(demo: Path) -> None:
    kernels, text = _json(demo / "kernel_config.json")["kernels"], (demo / "module.mlir").read_text()
    kernels = [kernel for kernel in kernels if kernel["kind"] == "block"]
    assert len(kernels) == 2  # a layer of prefill and one of decode
    for kernel in kernels:
        tensors = [argument for argument in kernel["arguments"] if argument["kind"] == "tensor"]
        assert kernel["arguments"][: len(tensors)] == tensors
        assert kernel["signature"] == [argument["effective"] for argument in tensors] + ["OUT"] * 3
        updated = [i for i, direction in enumerate(kernel["signature"]) if direction == "INOUT"]
        caches = [
            argument for argument, direction in zip(tensors, kernel["signature"], strict=False) if direction == "INOUT"
        ]
        assert [cache["shape"] for cache in caches] == [[1, 2, 20, 16]] * 2
        assert [cache["direction"] for cache in caches] == ["INOUT"] * 2
        results = [(result["direction"], result["alias_arg"], result["shape"][-1]) for result in kernel["results"]]
        assert results == [*(("INOUT", number, 16) for number in updated), ("OUT", None, 64)]
        (head,) = re.findall(rf"func.func private @{kernel['name']}\((.*?)\) ->", text)
        assert [len(kind.split("x")) - 1 for kind in re.findall(r"tensor<([^>]*)>", head)] == [
            len(argument["shape"]) for argument in kernel["arguments"]
        ]
        assert text.count(f" call @{kernel['name']}(") == kernel["call_sites"] == 1


def test_sha256_is_of_every_file(demo: Path) -> None:
    config, report = _json(demo / "kernel_config.json"), _json(demo / "report.json")
    others = [path for path in demo.iterdir() if path.name not in ("kernel_config.json", "report.json")]
    assert config["sha256"] == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in others}
    assert config["sha256"].items() <= report["hashes"].items()


def test_the_report_has_the_fields_of_the_contract(demo: Path) -> None:
    report = _json(demo / "report.json")
    assert report["lowering"] == "streaming"
    assert report["model"]["name"] == "demo"
    assert report["import_rss_bytes"] > 10**6
    assert list(report["phases"]) == ["load", "lower", "parameters", "compile", "verify"]
    for cost in report["phases"].values():
        assert set(cost) == {"seconds", "rss_delta_bytes", "anonymous_delta_bytes"}
        assert cost["seconds"] > 0
    assert set(report["nodes"]) == {"recorded", "pruned", "emitted"}
    assert report["nodes"]["recorded"] >= report["nodes"]["emitted"] > 50
    assert report["largest_stretch"]["block"] == "model.layers.0"
    assert report["largest_stretch"]["nodes"] < report["nodes"]["recorded"]
    parameters = report["parameters"]
    assert {"used", "tied", "ignored", "missing", "bytes"} <= set(parameters)
    assert "model.layers.0.mlp.up_proj.weight" in parameters["used"]
    assert any(key.startswith("model.layers.1.") for key in parameters["ignored"])  # --num_layers=1
    assert parameters["missing"] == []
    predicted, actual = report["predicted"], report["actual"]
    assert predicted["nodes"] == actual["nodes"] == report["nodes"]
    for name in ("module.mlir", "weights.irpa"):
        assert predicted["files"][name] == actual["files"][name] == (demo / name).stat().st_size
    assert set(report["steps"]) == {"lower", "parameters", "compile.llvm-cpu", "portable", "verify"}
    assert not any(step["reused"] for step in report["steps"].values())
    rows = report["verification"]
    assert {(row["device"], row["entry_point"]) for row in rows} == {
        ("local-task", "prefill"),
        ("local-task", "decode"),
    }
    for row in rows:
        assert {"result", "max_abs", "max_rel", "cosine", "nmse", "top1"} <= set(row)
        assert row["max_rel"] < 1e-4
        assert row["cosine"] == pytest.approx(1)
