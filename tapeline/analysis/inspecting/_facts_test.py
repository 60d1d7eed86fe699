"""Facts of a small bundle that is written by hand: whole, damaged, and as text."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, InputError, MappingWeights, TensorSpec
from tapeline.analysis.inspecting import (
    GRAPH_FORMATS,
    check_whole,
    facts,
    facts_text,
    files,
    graph_text,
    model_facts,
    model_text,
    parameters,
    parameters_text,
    stored_tensors,
    write_graphs,
)
from tapeline.bundle import MARK, MODULE, REPORT, Bundle, KernelConfig, KernelRecord, sha256_of

_SPEC = TensorSpec((2, 3), "f32")
_CACHES = [f"layers.{i}.cache" for i in range(2)]
_SIGNATURE = Signature(
    "decode",
    (
        LoweredArgument("x", _SPEC, guarded=True),
        LoweredArgument("position", TensorSpec((), "i32"), "scalar"),
        *(LoweredArgument(name, _SPEC, alias_result=name, effective="INOUT", in_place=True) for name in _CACHES),
    ),
    (LoweredResult("y", _SPEC), *(LoweredResult(name, _SPEC) for name in _CACHES)),
)
_PARAMETERS: dict[str, dict[str, Any]] = {
    "embed": {"dtype": "f32", "shape": [8, 3]},
    "layers.0.w": {"dtype": "f32", "shape": [3, 3]},
    "layers.1.w": {"dtype": "i8", "shape": [3, 34], "encoding": "q8_0"},
}
_VERIFICATION = [
    {"device": "local-task", "entry_point": "decode", "result": name, "max_abs": 0.5, "max_rel": rel, "cosine": 1.0}
    for name, rel in (("y", 1e-6), ("layers.0.cache", 1e-6), ("layers.1.cache", 2e-6))
]


def _write_module(path: Path) -> None:
    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        return {"y": ctx.ops.exp(x)}

    with path.open("w") as file:
        lower_module([EntryPoint("decode", fn, (Argument("x", _SPEC),))], file.write, ExternalParameters())


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    path = tmp_path / "bundle"
    path.mkdir()
    _write_module(path / MODULE)
    (path / "tokenizer.json").write_text("{}")
    (path / REPORT).write_text(json.dumps({"nodes": {"recorded": 5}, "verification": _VERIFICATION}))
    KernelConfig(
        [_SIGNATURE],
        kernels=[
            KernelRecord("block.layers.0", 2, ["IN", "IN", "INOUT"]),
            KernelRecord("block.other", 1, None, "it is never called"),
        ],
        parameters=_PARAMETERS,
        targets={"vmvx": {"file": "module.vmvx.vmfb", "devices": ["local-task"], "flags": ["--a", "--b"]}},
        model={"family": "llama", "windows": [1, 1, 2], "rope": {"base": 10000}},
        producer={"tapeline": "1.0"},
        sha256={name: sha256_of(path / name) for name in (MODULE, "tokenizer.json")},
    ).write(path / MARK)
    return Bundle(path)


def _words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_facts_have_what_the_files_say(bundle: Bundle) -> None:
    result = facts(bundle, hashes=True)
    assert {file["name"]: file["state"] for file in result["files"]} == dict.fromkeys(
        [MARK, MODULE, REPORT, "tokenizer.json"], "ok"
    )
    assert result["nodes"] == {"recorded": 5}
    assert result["verification"] == _VERIFICATION
    summary = result["parameters"]
    assert (summary["count"], summary["bytes"]) == (3, 96 + 36 + 102)
    assert summary["dtypes"] == {"f32": {"count": 2, "bytes": 132}, "q8_0": {"count": 1, "bytes": 102}}
    assert [row["path"] for row in summary["largest"]] == ["layers.1.w", "embed", "layers.0.w"]
    json.dumps(result)


def test_the_state_of_each_file(bundle: Bundle) -> None:
    (bundle.path / "tokenizer.json").unlink()
    (bundle.path / MODULE).write_text("something else")
    (bundle.path / "notes.txt").touch()
    states = {file["name"]: (file["bytes"], file["state"]) for file in files(bundle, hashes=True)}
    assert states["tokenizer.json"] == (None, "missing")
    assert states[MODULE] == (14, "differs")
    assert states["notes.txt"] == (0, "not listed")
    assert {file["name"]: file["state"] for file in files(bundle, hashes=False)}[MODULE] == "not checked"
    with pytest.raises(InputError, match=r"module.mlir: changed since the export .*; tokenizer.json: missing: export"):
        check_whole(bundle.path, files(bundle, hashes=True))


def test_an_untouched_bundle_is_whole(bundle: Bundle) -> None:
    check_whole(bundle.path, files(bundle, hashes=True))


@pytest.mark.parametrize("report", ["{", "[]", '{"verification": [{"device": "a", "entry_point": "f"}]}'])
def test_a_damaged_report_is_refused(bundle: Bundle, report: str) -> None:
    (bundle.path / REPORT).write_text(report)
    with pytest.raises(InputError, match=r"report.json: damaged \(.*\): export the bundle again"):
        facts(bundle, hashes=False)


def test_parameters_by_pattern(bundle: Bundle) -> None:
    rows = parameters(bundle, "layers.*")
    assert [(row["path"], row["bytes"]) for row in rows] == [("layers.0.w", 36), ("layers.1.w", 102)]
    assert _words(parameters_text(rows)) == [
        "layers.0.w f32[3,3] 36 bytes",
        "layers.1.w q8_0 in i8[3,34] 102 bytes",
        "2 parameters, 138 bytes",
    ]
    with pytest.raises(InputError, match=r"parameters=embd: none of the 3 parameters of .* did you mean 'embed'"):
        parameters(bundle, "embd")


def test_text_joins_rows_that_differ_in_numbers_only(bundle: Bundle) -> None:
    lines = _words(facts_text(facts(bundle, hashes=True)))
    for line in (
        f"{bundle.path} (schema 2)",
        "producer: tapeline 1.0",
        "model: family llama, windows [1 x 2, 2], rope (base 10000)",
        "argument IN x f32[2,3] guarded by a copy",
        "argument IN position i32[] scalar",
        "argument INOUT layers.N.cache x 2 f32[2,3] donated becomes result layers.N.cache",
        "result INOUT layers.N.cache x 2 f32[2,3] was argument layers.N.cache",
        "block.layers.0 called 2 times (IN x 2, INOUT)",
        "block.other called 1 times no signature: it is never called",
        "parameters: 3, 234 bytes",
        "target vmvx: module.vmvx.vmfb",
        "flags: --a --b",
        "nodes: 5 recorded",
        "local-task decode.layers.N.cache x 2 max abs 0.5, max rel 2e-06, cosine 1.000000",
    ):
        assert line in lines


def test_a_bundle_without_a_report_says_so(bundle: Bundle) -> None:
    (bundle.path / REPORT).unlink()
    assert "verification: the bundle has no report" in facts_text(facts(bundle, hashes=False))


def test_graphs_in_every_format(bundle: Bundle) -> None:
    signatures = bundle.config.entry_points
    write_graphs(bundle.path, signatures, GRAPH_FORMATS)
    for form in GRAPH_FORMATS:
        text = (bundle.path / f"graph.{form}").read_text()
        assert text == graph_text(bundle.path, signatures, form)
        assert "decode" in text
    (bundle.path / MODULE).unlink()
    with pytest.raises(InputError, match=r"module.mlir: cannot be read \(No such file"):
        graph_text(bundle.path, signatures, "dot")


def test_facts_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "text": "x" * 100}))
    (tmp_path / "tokenizer.json").touch()
    weights = MappingWeights({"a.weight": np.zeros((2, 3), np.float32), "b.weight": np.zeros(4, np.float16)})
    result = model_facts("tiny", tmp_path, weights, {"format": "safetensors"})
    assert result["tokenizer"] == ["tokenizer.json"]
    assert (result["tensors"]["count"], result["tensors"]["bytes"]) == (2, 32)
    text = model_text(result)
    assert text.startswith("tiny (format safetensors)\n")
    assert f'text        "{"x" * 79}...' in text
    assert stored_tensors("tiny", weights, "b.*") == [{"path": "b.weight", "dtype": "f16", "shape": [4], "bytes": 8}]
    with pytest.raises(InputError, match=r"parameters=c: none of the 2 tensors of tiny matches"):
        stored_tensors("tiny", weights, "c")
