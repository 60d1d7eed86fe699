"""Compiled modules that exports keep for one another."""

import json
from pathlib import Path
from typing import Any

import pytest

import tapeline
from lang_core import InputError, f32
from run_iree.compiler import OutlineRule
from tests.product._bundles import invoke, stablehlo_here
from transformer_core.checkpoints import LlamaSizes, write_random_llama

_SIZES = LlamaSizes(hidden=16, intermediate=24, layers=1, heads=2, kv_heads=1, vocabulary=40)


def _export(folder: Path, seed: int, name: str, progress: list[str], **options: Any) -> dict[str, Any]:
    write_random_llama(folder / name, _SIZES, f32, seed=seed)
    with stablehlo_here():
        bundle = tapeline.export(
            folder / name,
            folder / f"bundle-{name}",
            sequence=4,
            max_sequence=8,
            progress=lambda event: progress.append(str(event)),
            **options,
        )
    return json.loads((bundle.path / "report.json").read_text())["compiled"]["llvm-cpu"]


def test_another_checkpoint_of_one_architecture_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TAPELINE_MODULE_CACHE", "64MiB")
    told: list[str] = []
    first = _export(tmp_path, 1, "one", told)
    assert first["compile"] == "compiled"
    assert not [text for text in told if "cached" in text]
    (entry,) = (tmp_path / "cache" / "tapeline" / "modules").glob("*.module")
    second = _export(tmp_path, 2, "another-name", told, resume=True)
    assert (second["compile"], second["schedule"]) == ("cached", first["schedule"])
    assert "compile: cached (module.mlir for llvm-cpu)" in told
    modules = [tmp_path / f"bundle-{name}" / "module.llvm-cpu.vmfb" for name in ("one", "another-name")]
    assert modules[0].read_bytes() == modules[1].read_bytes()
    assert len({path.stat().st_ino for path in [*modules, entry]}) == 3  # a bundle's own copy: it is mapped
    entry.write_bytes(entry.read_bytes()[:-9])
    assert _export(tmp_path, 2, "damaged", told)["compile"] == "compiled"


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("TAPELINE_MODULE_CACHE", "64MiB")
    told: list[str] = []
    assert _export(tmp_path, 1, "one", told, verify="none")["compile"] == "compiled"
    (warning,) = [text for text in told if text.startswith("warning: cannot keep")]
    assert "set TAPELINE_MODULE_CACHE=0 to turn the cache off" in warning


def test_a_bound_that_is_no_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("TAPELINE_MODULE_CACHE", "much")
    done = invoke("export", capsys, f"--output={tmp_path / 'out'}", "--target=none", "--verify=none")
    assert (done.code, done.err.splitlines()[-2:]) == (
        2,
        [
            "error: TAPELINE_MODULE_CACHE=much: expected a size such as 512MiB, 1GiB or 2.5GB",
            "see: tapeline explain InputError, or docs/errors.md#inputerror",
        ],
    )
    with pytest.raises(InputError, match="TAPELINE_MODULE_CACHE=much: expected a size"):
        tapeline.export("demo", tmp_path / "out", target=(), verify="none")


def test_blocks_that_stay_functions_generate_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verified by the export, with caches of sliding windows and without, packed and not."""
    write_random_llama(tmp_path / "model", _SIZES._replace(layers=3, hidden=64, intermediate=96), f32, seed=5)
    ids = list(range(1, 12))
    answers = []
    for rule in (None, OutlineRule(2, 0)):
        monkeypatch.setattr("run_iree.compiler._targets.OutlineRule", lambda rule=rule: rule)
        for quantize in ("none", "q8_0"):
            folder = tmp_path / f"{rule is None} {quantize}"
            with stablehlo_here():
                bundle = tapeline.export(
                    tmp_path / "model", folder, sequence=4, max_sequence=32, quantize=quantize, num_layers=3
                )
            schedule = bundle.config.targets["llvm-cpu"]["schedule"]
            assert set(schedule) == {"prefill", "decode"}
            assert schedule["decode"]["copies"] == 0
            assert quantize != "none" or (schedule["decode"]["submissions"] > 3) == (rule is not None)
            with tapeline.load(bundle) as model:
                stream = model.stream_batch(token_ids=[ids], max_new_tokens=9, ignore_eos=True)
                answers.append([(token.token_id, token.logits.copy()) for token in stream])
    for (mine, logits), (theirs, others) in zip(answers[0] + answers[1], answers[2] + answers[3], strict=True):
        assert mine == theirs
        assert (logits == others).all()
