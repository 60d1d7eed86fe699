"""Contents of an export: modules that others read, weights in each form, other dtypes, the same bytes again."""

import functools
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, TensorSpec
from run_iree import CompileReport, Target, compile_module
from run_iree.archive import read_archive_index
from tapeline.bundle import Bundle
from tests.goldens.cases import CASES
from tests.goldens.weights import stored_weights, write_checkpoint
from tests.product import _exports
from tests.product._bundles import export, export_case, tree
from tests.product._exports import FAST, Export

demo, exporting = _exports.demo, _exports.exporting


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_stablehlo_reads_the_portable_artifact(demo: Path) -> None:
    context = mlir.make_ir_context()
    with context:
        module = stablehlo.deserialize_portable_artifact(context, (demo / "module.vhlo").read_bytes())
        module.operation.verify()
        names = [ir.StringAttr(operation.attributes["sym_name"]).value for operation in module.body.operations]
    assert {"prefill", "decode"} <= set(names)


def test_the_plain_compiler_takes_the_module(demo: Path, tmp_path: Path) -> None:
    report = compile_module(demo / "module.mlir", tmp_path / "m.vmfb", "vmvx")
    flags = [flag for flag in report.flags if "iree-opt" not in flag]
    assert all(flag.startswith("--iree-") for flag in flags)
    assert report.vmfb_bytes > 0


def test_the_archive_holds_the_checkpoint_bit_for_bit(demo: Path, tmp_path: Path) -> None:
    case = CASES["tinyllama_4x"]  # bf16
    bundle = export_case(case, tmp_path, target=("none",)[1:], dtype="bf16", sequence=4, max_sequence=8)
    data = (bundle / "weights.irpa").read_bytes()
    records = read_archive_index(bundle / "weights.irpa")
    weights = stored_weights(case)
    assert set(records) == set(weights)
    for name, array in weights.items():
        record = records[name]
        assert data[record.offset : record.offset + record.nbytes] == array.tobytes(), name


def test_inline_weights_need_no_archive_and_compute_the_same(tmp_path: Path) -> None:
    case = CASES["llama_gqa"]
    sizes: dict[str, Any] = {"sequence": 9, "entry_points": ("forward",), "num_layers": 1}
    inline = export_case(case, tmp_path / "inline", weights="inline", verify="iree", **sizes)
    assert not (inline / "weights.irpa").exists()
    external = export_case(case, tmp_path / "external", **sizes)
    logits, other = (_forward(bundle, case.prompt[0][:9]) for bundle in (inline, external))
    assert logits.argmax(-1).tolist() == other.argmax(-1).tolist()
    np.testing.assert_allclose(logits, other, rtol=1e-4, atol=1e-5)


def _forward(bundle: Path, prompt: Sequence[int]) -> np.ndarray:
    with Bundle(bundle).session("local-task") as session:
        return session.function("forward")(np.array([prompt], np.int32))[0].numpy()


def test_without_weights_only_the_description_is_made_and_no_weight_is_read(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_checkpoint(tmp_path / "model", CASES["qwen3"])
    (tmp_path / "model" / "model.safetensors").unlink()
    bundle = export(tmp_path / "model", tmp_path / "b", weights="none", target=(), verify="auto")
    assert sorted(path.name for path in bundle.iterdir()) == [
        "config.json",
        "kernel_config.json",
        "module.mlir",
        "module.vhlo",
        "report.json",
    ]
    parameters = Bundle(bundle).config.parameters
    assert parameters["model.norm.weight"]["dtype"] == "f32"


def test_packed_modules_without_weights_are_compiled(tmp_path: Path) -> None:
    """Their tensors are counted in the text with kernels: without, the compiler refuses 16-bit packed products."""
    packed: dict[str, Any] = {"dtype": "bf16", "quantize": "q4_0", "weights": "none", "verify": "none"}
    bundle = export("demo", tmp_path / "bundle", target=("llvm-cpu",), **packed)
    assert (bundle / "module.llvm-cpu.vmfb").exists()


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_other_dtypes_are_verified_within_their_tolerance(dtype: str, tmp_path: Path) -> None:
    case = CASES["qwen3"]
    bundle = export_case(
        case, tmp_path, dtype=dtype, verify="iree", entry_points=("forward",), sequence=7, num_layers=1
    )
    report = _json(bundle / "report.json")
    assert [row["entry_point"] for row in report["verification"]] == ["forward"]
    assert all(row["cosine"] > 0.999 for row in report["verification"])
    forward = Bundle(bundle).entry_point("forward")
    assert [argument.name for argument in forward.arguments] == ["token_ids"]
    assert forward.results[0].spec.shape == (1, 7, case.config["vocab_size"])


def test_the_interpreter_agrees(tmp_path: Path) -> None:
    bundle = export_case(
        CASES["llama_mqa"], tmp_path, verify="interpreter", target=(), sequence=3, max_sequence=5, num_layers=1
    )
    report = _json(bundle / "report.json")
    assert {row["device"] for row in report["verification"]} == {"interpreter"}
    assert {row["entry_point"] for row in report["verification"]} == {"prefill", "decode"}


def test_an_export_repeats_bit_for_bit(demo: Path, tmp_path: Path) -> None:
    again = export("demo", tmp_path / "b", num_layers=1, sequence=6, max_sequence=20, target=())
    first, second = tree(demo), tree(again)
    for name in ("module.mlir", "module.vhlo", "weights.irpa", "config.json"):
        assert first[name] == second[name], name


def test_two_exports_of_a_model_in_two_folders_differ_in_the_report_alone(tmp_path: Path) -> None:
    (tmp_path / "one" / "model").mkdir(parents=True)
    write_checkpoint(tmp_path / "one" / "model", CASES["llama_gqa"])
    shutil.copytree(tmp_path / "one" / "model", tmp_path / "two" / "deeper" / "model")
    options: dict[str, Any] = {"target": ("vmvx",), "verify": "none", "sequence": 6, "max_sequence": 20}
    first = export(tmp_path / "one" / "model", tmp_path / "one" / "bundle", **options)
    second = export(tmp_path / "two" / "deeper" / "model", tmp_path / "two" / "bundle", **options)
    assert {name for name, data in tree(first).items() if data != tree(second)[name]} == {"report.json"}
    assert _json(first / "kernel_config.json")["model"]["name"] == "model"
    for data in tree(first).values():
        assert str(tmp_path).encode() not in data or data == (first / "report.json").read_bytes()


def test_both_lowerings_write_the_same_text(tmp_path: Path) -> None:
    texts = [
        (export_case(CASES["llama_gqa"], tmp_path / way, lowering=way, target=()) / "module.mlir").read_bytes()
        for way in ("streaming", "buffered")
    ]
    assert texts[0] == texts[1]


def test_nan_weights_are_kept_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["llama_gqa"]
    weights = stored_weights(case)
    damaged = weights["model.layers.0.mlp.up_proj.weight"]
    damaged[3, 5], damaged[0, 0] = np.nan, -np.inf
    monkeypatch.setattr("tests.goldens.weights.stored_weights", lambda *_: weights)
    sizes: dict[str, Any] = {"sequence": 5, "entry_points": ("forward",), "num_layers": 1}
    ways: dict[str, dict[str, Any]] = {"external": {"verify": "auto"}, "inline": {"target": ()}}
    for way, more in ways.items():
        bundle = export_case(case, tmp_path / way, weights=way, **sizes, **more)
        report = _json(bundle / "report.json")
        assert report["parameters"]["nonfinite"] == {"model.layers.0.mlp.up_proj.weight": {"nan": 1, "inf": 1}}
        said = capsys.readouterr().err
        assert "warning: parameter model.layers.0.mlp.up_proj.weight in" in said
        assert "model.safetensors has 1 nan, 1 inf: kept exactly as stored" in said
    data = (tmp_path / "external" / "bundle" / "weights.irpa").read_bytes()
    assert damaged.tobytes() in data


@pytest.mark.parametrize("there", [True, False])
def test_what_no_device_loads_is_refused(
    exporting: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Without verification too, and without the device; the compiler takes such a module."""
    if not there:
        monkeypatch.setattr("tapeline.exporting._compile.available", lambda device: (False, "not here"))
    monkeypatch.setattr("tapeline.exporting._compile.compile_module", _compiled_chain)
    done = exporting(*FAST, "--output=out", "--verify=none", "--target=vmvx")
    assert done.code == 1
    assert "fused a chain of ops into one that takes 41 tensors, and the device passes 32 at most" in done.err
    assert not (tmp_path / "out").exists()


def _compiled_chain(source: Path, output: Path, target: Target, **flags: Any) -> CompileReport:
    arguments = tuple(Argument(f"x{i}", TensorSpec((7, 5), "f32")) for i in range(40))
    chain = EntryPoint("main", lambda ctx, *values: {"y": functools.reduce(ctx.ops.add, values)}, arguments)
    with source.open("w") as text:
        lower_module([chain], text.write, ExternalParameters())
    return compile_module(source, output, target, **flags)
