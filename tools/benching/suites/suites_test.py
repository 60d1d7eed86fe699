"""Every suite runs, at sizes whose figures mean nothing."""

import os
from pathlib import Path

import pytest

from lang_core import bf16
from tools.benching.suites import (
    SUITES,
    Run,
    Runner,
    SuiteResult,
    _streaming_suite,
    as_markdown,
    as_text,
    run_suite,
    tiny_plan,
)
from tools.benching.suites._plan import LLAMA_405B, TINY, Plan, config_of, large_config
from transformer_core.checkpoints import write_random_llama
from transformer_core.models import DecoderConfig, DecoderLM


def measured(name: str, tmp_path: Path, checkpoint: Path | None = None) -> Run:
    return run_suite(name, Runner(1, tmp_path, print), tiny_plan(checkpoint), f"bench --suite {name}")


def cases(result: SuiteResult) -> list[str]:
    return [case.name for table in result.tables for case in table.cases]


# Suites of several processes per figure run with TAPELINE_LONG=1.
_PROCESSES = ("decode", "embeddings", "engines", "kernels", "lowering", "pages", "pictures", "rows", "serve", "speech")
_SLOW = () if os.environ.get("TAPELINE_LONG") else _PROCESSES


@pytest.mark.parametrize("name", [name for name in SUITES if name not in ("streaming", *_SLOW)])
def test_suites_run(name: str, tmp_path: Path) -> None:
    run = measured(name, tmp_path)
    assert run.result.suite == name
    assert run.result.goals
    assert all(run.result.facts.values())
    assert all(case.values for table in run.result.tables for case in table.cases)
    for report in as_text(run), as_markdown(run):
        assert all(case in report for case in cases(run.result))


@pytest.mark.skipif(not os.environ.get("TAPELINE_LONG"), reason="whole exports by each system: TAPELINE_LONG=1")
def test_streaming_with_whole_exports(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    write_random_llama(checkpoint, TINY, bf16)
    result = measured("streaming", tmp_path, checkpoint).result
    assert {
        "streaming, 2",
        "buffered, 3",
        "jax.export, 2",
        "inline, streaming",
        "external, buffered",
        "tiny",
        "flat, 160 nodes",
    } <= {*cases(result)}
    assert "jax.export, 3" not in cases(result)
    assert len(result.facts) == 7
    assert all(result.facts.values())
    assert not (tmp_path / "bundle").exists()


def test_streaming_without_a_checkpoint_has_no_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = []
    for part in ("_layers", "_blocks", "_chains", "_large", "_experts", "dry_runs"):
        monkeypatch.setattr(_streaming_suite, part, lambda *_: None)
    monkeypatch.setattr(
        _streaming_suite, "exports", lambda runner, plan, checkpoint, result: exported.append(checkpoint)
    )
    assert cases(measured("streaming", tmp_path).result) == exported == []
    measured("streaming", tmp_path, tmp_path)
    assert exported == [tmp_path]


def test_configs_are_of_the_named_shapes() -> None:
    large = DecoderConfig.from_hf(large_config(LLAMA_405B))
    assert (large.layers, large.hidden, large.intermediate, large.heads, large.kv_heads, large.vocabulary) == (
        126,
        16384,
        53248,
        128,
        8,
        128256,
    )
    assert type(large.rope.scaling).__name__ == "Llama3Scaling"
    assert DecoderConfig.from_hf(config_of(TINY, 7)).layers == 7


@pytest.mark.parametrize(("name", "billions"), [("DeepSeek-V3", 671.0), ("Mixtral 8x22B", 140.6)])
def test_models_with_experts_have_the_published_number_of_parameters(name: str, billions: float) -> None:
    model = DecoderLM(DecoderConfig.from_hf(Plan().experts[name]))
    assert sum(parameter.spec.size for _, parameter in model.named_parameters()) / 1e9 == pytest.approx(
        billions, abs=0.1
    )
