"""A model that drafts with its own multi-token prediction head: the same tokens, from fewer calls."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tapeline.bundle import Bundle
from tapeline.runners import BundleModel
from tests.goldens.golden_files import read_golden
from tests.goldens.mtp_cases import MTP_CASES, checkpoint_weights, golden_path, mtp_case
from tests.product import _bundles
from tests.product._bundles import export, invoke, refused

compiled_once = _bundles.compiled_once
pytestmark = pytest.mark.usefixtures("compiled_once")


def _exported(name: str, directory: Path, **changes: Any) -> Path:
    model = directory / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(mtp_case(name).config))
    safetensors.numpy.save_file(checkpoint_weights(mtp_case(name)), model / "model.safetensors")
    length = len(mtp_case(name).prompt[0]) + 16
    sizes: dict[str, Any] = {"sequence": 8, "max_sequence": length, "verify_tokens": 4, **changes}
    sizes["verify"] = "auto"
    return export(model, directory / "bundle", entry_points=("prefill", "decode", "verify", "draft"), **sizes)


_NAMES = [*MTP_CASES] if os.environ.get("TAPELINE_LONG") else ["qwen3_5"]


@pytest.mark.parametrize("name", _NAMES)
def test_a_bundle_drafts_for_itself(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = _exported(name, tmp_path)
    report = json.loads((bundle / "report.json").read_text())
    assert {row["entry_point"] for row in report["verification"]} >= {"prefill", "decode", "verify", "draft"}
    golden, prompt = read_golden(name), mtp_case(name).prompt[0]
    flags = [f"--bundle={bundle}", f"--token_ids={','.join(map(str, prompt))}", "--ignore_eos"]
    flags += ["--max_new_tokens=12", f"--stats={tmp_path / 's.json'}"]
    for more in ([], ["--speculate=mtp"], ["--speculate=mtp", "--draft_tokens=1"], ["--speculate=prompt_lookup"]):
        done = invoke("generate", capsys, *flags, *more)
        assert done.code == 0, done.err
        assert [int(token) for token in done.out.split(",")] == golden.tokens[0].tolist()
        stats = json.loads((tmp_path / "s.json").read_text())
        assert bool(stats["head_calls"]) == (more[:1] == ["--speculate=mtp"])
        assert stats["drafted"] <= stats["head_calls"] or "mtp" not in "".join(more)
        assert 11 / stats["tokens_per_call"] >= 11 - stats["accepted"] - 1e-6
    _assert_draft(Bundle(bundle), name)
    sampled = [*flags, "--temperature=1.1", "--seed=5"]
    assert invoke("generate", capsys, *sampled, "--speculate=mtp") == invoke("generate", capsys, *sampled)


def _assert_draft(bundle: Bundle, name: str) -> None:
    """The compiled head against the paper's."""
    with np.load(golden_path(name)) as golden, bundle.session("local-task") as session:
        tokens, expected = golden["tokens"][0], golden["logits"][0]
        model = BundleModel(bundle, session)
        model.prefill(tokens[None, :8], 0, 7)
        logits = model.draft(int(tokens[8]), 8).logits()
        assert np.abs(logits - expected[7]).max() < 2e-4 * np.abs(expected).max()


def test_what_the_user_got_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The options of speculation_test, so that both share one compilation.
    sizes: dict[str, Any] = {"sequence": 8, "max_sequence": 72, "verify_tokens": 5}
    demo = export("demo", tmp_path / "demo", entry_points=("prefill", "decode", "verify"), **sizes)
    flags = ["--prompt=a", "--max_new_tokens=3", "--speculate=mtp"]
    refused(invoke("generate", capsys, f"--bundle={demo}", *flags), "and no draft of a multi-token prediction head")
    done = invoke("export", capsys, "--model=demo", f"--output={tmp_path / 'x'}", "--entry_points=prefill,decode,draft")
    refused(done, "draft: LlamaForCausalLM needs one multi-token prediction head in its checkpoint")
