"""The kernels of a model: exported, run and noted, tuned, exported again, explained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import (
    ConfigSelectorChain,
    Invocation,
    PersistentCache,
    autotune_lowered,
    forget_invocations,
    labels_to_configs,
    read_record,
)
from autotune.iree_compiler import IreeCompiler
from autotune.supplied import LinearConfig, LinearKernel
from lang_core import InputError
from tapeline.bundle import Bundle, PhaseMeter
from tapeline.exporting import ExportOptions, run_export
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.product._bundles import Finished, export, export_case, greedy, invoke

_CASE = CASES["llama_gqa"]
_SIZES: dict[str, Any] = {"num_layers": 1, "entry_points": ("forward",), "sequence": 6}

Call = Callable[..., Finished]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return lambda command, *flags: invoke(command, capsys, *flags)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PersistentCache[Any]:
    monkeypatch.setenv("TAPELINE_KERNEL_CACHE", str(tmp_path / "cache"))
    for name in ("TAPELINE_OPS_RECORD", "TAPELINE_OPS_RECORD_FILE", "TAPELINE_OPS_STAMP"):
        monkeypatch.delenv(name, raising=False)
    forget_invocations()
    return PersistentCache()


def _calls(bundle: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The calls of kernel_config.json by op and call key."""
    calls = json.loads((bundle / "kernel_config.json").read_text())["kernel_calls"]
    return {(call["key"][1], call["key"][2]): call for call in calls}


def _run(bundle: Path) -> None:
    with Bundle(bundle).session("local-task") as session:
        session.function("forward")(np.arange(6, dtype=np.int32)[None])


def _code(bundle: Path) -> list[str]:
    return [line for line in (bundle / "module.mlir").read_text().splitlines() if not line.lstrip().startswith("//")]


def test_a_models_calls_are_noted_tuned_and_taken_up_by_the_next_export(
    tmp_path: Path, call: Call, cache: PersistentCache[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [LinearConfig(), LinearConfig("flat")]  # of nine, for each is compiled for each call
    monkeypatch.setattr(LinearKernel, "candidate_cfgs", lambda self, inv: few)
    first = export_case(_CASE, tmp_path, kernels="tuned", verify="iree", **_SIZES)
    plain = export(tmp_path / "model", tmp_path / "plain", **_SIZES)
    assert _code(first) == _code(plain), "heuristics are what the model does"
    guessed = _calls(first)
    assert {call["provenance"] for call in guessed.values()} == {"heuristic"}
    assert {op for op, _ in guessed} == {"grouped_attention@v0", "linear@v0", "rms_norm@v0", "rope@v0"}
    assert not _calls(plain)

    # A run notes what is in the bundle.
    record = tmp_path / "cache" / "invocations.jsonl"
    _run(first)
    assert not record.exists(), "nobody asked"
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    _run(plain)
    assert not record.exists(), "a bundle without kernels has nothing to note"
    _run(first)
    _run(first)
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "0")
    noted = list(read_record(record))
    assert {(call.key.op, call.key.call) for call in noted} == set(guessed)
    assert len(record.read_text().splitlines()) == len(noted), "each once"

    # All of them are tuned, compiled by IREE for the bundle's device.
    tuned = call("tune", "--action=recorded", "--rounds=1", f"--picture={tmp_path / 'bars.svg'}")
    assert tuned.code == 0
    assert f"tuning {len(noted)} of {len(noted)}: " in tuned.err
    assert "not tuned" not in tuned.out
    assert len(tuned.out.splitlines()) == 1 + len(noted)
    assert "grouped_attention@v0" in (tmp_path / "bars.svg").read_text()
    assert {(entry.key.op, entry.key.call) for entry in cache.entries()} == set(guessed)
    (norm,) = {key for op, key in guessed if op == "rms_norm@v0"}
    pin = call("tune", "--action=pin", "--op=rms_norm", f"--call={norm}", '--cfg={"form": "dot"}')
    assert pin.code == 0

    # The next export takes them, is another text, and still computes what the model does.
    second = export(tmp_path / "model", tmp_path / "bundle", kernels="tuned", resume=True, verify="iree", **_SIZES)
    calls = _calls(second)
    assert set(calls) == set(guessed)
    assert calls["rms_norm@v0", norm]["provenance"] == "pinned"
    assert calls["rms_norm@v0", norm]["cfg"]["fields"] == {"form": "dot"}
    others = [call for key, call in calls.items() if key != ("rms_norm@v0", norm)]
    assert {(call["tier"], call["provenance"]) for call in others} == {("persistent", "tuned")}
    remembered = {(e.key.op, e.key.call): e.cfg for e in cache.entries()}
    assert {key: call["cfg"]["fields"] for key, call in calls.items()} == {
        key: vars(cfg) for key, cfg in remembered.items()
    }
    assert _code(second) != _code(plain)
    steps = json.loads((second / "report.json").read_text())["steps"]
    assert not steps["lower"]["reused"]

    # Labels are found again in the text, and lead to what is remembered.
    chain: ConfigSelectorChain[Any, Any] = ConfigSelectorChain(persistent=cache)
    assert {label.partition("#")[2]: cfg for label, cfg in labels_to_configs(second / "module.mlir", chain)} == {
        f"{op}:{key}": cfg for (op, key), cfg in remembered.items()
    }

    # And somebody can ask where each is from.
    explained = call("tune", "--action=explain", f"--bundle={second}").out
    assert explained.count("  tuned  ") == len(others)
    assert explained.count("the same") == len(calls)
    cache.clear("linear")
    explained = call("tune", "--action=explain", f"--bundle={second}", "--op=linear").out
    assert explained.count("nothing is remembered any more") == sum(op == "linear@v0" for op, _ in calls)
    as_json = json.loads(call("tune", "--action=explain", f"--bundle={second}", "--format=json").out)
    assert {row["now"] is None for row in as_json if row["op_id"] == "linear"} == {True}
    assert "no kernels were chosen for it" in call("tune", "--action=explain", f"--bundle={plain}").out


def test_what_a_lowered_module_uses_is_tuned(
    tmp_path: Path, cache: PersistentCache[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "1")
    bundle = export_case(_CASE, tmp_path, kernels="tuned", target=(), **_SIZES)
    monkeypatch.setenv("TAPELINE_OPS_RECORD", "0")
    text = (bundle / "module.mlir").read_text()
    norms = "\n".join(line for line in text.splitlines() if "#rms_norm@" in line)
    result = autotune_lowered(norms, ConfigSelectorChain(persistent=cache), calls=read_record())
    assert [entry.op_id_v for entry in result.entries] == ["rms_norm@v0"]
    assert [entry.key.op for entry in cache.entries()] == ["rms_norm@v0"]
    assert cache.entries()[0].key.device.startswith("iree|cpu|local-task|")


def test_a_bundle_with_kernels_decodes_transformers_tokens(tmp_path: Path, cache: PersistentCache[Any]) -> None:
    """Takes the last candidates, which are least like the model's own: put by hand, not measured."""
    golden = read_golden(_CASE.name)
    prompt = [int(token) for token in golden.prompt[0]]
    sizes: dict[str, Any] = {"sequence": len(prompt), "max_sequence": len(prompt) + _CASE.steps}
    guessed, device = export_case(_CASE, tmp_path, kernels="tuned", target=(), **sizes), IreeCompiler().environment()
    for call in _recorded(guessed, tmp_path):
        kernel = call.make_kernel()
        last = list(kernel.candidate_cfgs(Invocation(call.op_id, call.args, call.kwargs)))[-1]
        assert cache.put(device.fingerprint, call.key.op, call.key.call, last, "pinned")
    bundle = export(tmp_path / "model", tmp_path / "pinned", kernels="tuned", **sizes)
    assert {call["provenance"] for call in _calls(bundle).values()} == {"pinned"}
    assert _code(bundle) != _code(guessed)
    tokens, logits = greedy(bundle, "local-task", prompt, _CASE.steps)
    assert tokens == golden.tokens[0].tolist()
    assert np.abs(logits - golden.logits[0]).max() / np.abs(golden.logits[0]).max() < 2e-4


def _recorded(bundle: Path, folder: Path) -> list[Any]:
    lines = json.loads((bundle / "kernel_config.json").read_text())["kernel_calls"]
    (folder / "calls.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return list(read_record(folder / "calls.jsonl"))


def test_one_module_is_for_one_device(tmp_path: Path) -> None:
    options = ExportOptions("demo", tmp_path / "bundle", kernels="tuned", target=("llvm-cpu", "vmvx"))
    with pytest.raises(InputError, match=r"kernels=tuned with target=llvm-cpu,vmvx: configurations are chosen for"):
        run_export(options, tmp_path, PhaseMeter())
    assert not (tmp_path / "bundle").exists()
