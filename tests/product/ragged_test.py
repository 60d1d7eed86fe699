"""Bundles for sequences of different lengths, with ring caches, on a device: each says what it says alone."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generation import Sampler, SamplingConfig, StopRule, generate_batch
from lang_core import InputError
from run_iree import available, target_of_device
from run_iree._device_testing import sharing
from tapeline.bundle import Bundle
from tapeline.running import BundleBatch
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.product._bundles import ON_FAST_DEVICES, export_case, greedy

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
pytestmark = ON_FAST_DEVICES
_HERE = [
    pytest.param(_DEVICE, marks=() if available(_DEVICE)[0] else pytest.mark.skip(reason=available(_DEVICE)[1])),
]
# Some layers with a window and some without; states beside caches, which the interpreter has in any case.
_STATES = ["qwen3_next_mixed_4x", "mamba2_4x", "falcon_h1_normed_4x"]
_NAMES = ["gemma3", *(_STATES if _DEVICE == "local-task" and os.environ.get("TAPELINE_LONG") else [])]
_BATCH = 4


def _prompts(name: str) -> list[list[int]]:
    """The golden prompt between shorter ones of the same tokens; one row has none."""
    whole = list(CASES[name].prompt[0])
    return [whole[2:5], whole, whole[:-4]]


@pytest.mark.parametrize("device", _HERE)
@pytest.mark.parametrize("name", _NAMES)
def test_rows_say_what_they_say_alone(name: str, device: str, tmp_path: Path) -> None:
    case, prompts = CASES[name], _prompts(name)
    options = {"sequence": 3, "max_sequence": len(prompts[1]) + case.steps, "target": (target_of_device(device),)}
    ragged = export_case(case, tmp_path / "ragged", batch=_BATCH, positions="per_row", **options)
    alone = export_case(case, tmp_path / "alone", window_caches="whole", **options) if name == "gemma3" else None
    if alone is not None:
        _check_described(ragged, alone)
    for shared_device in sharing(device):
        _check_rows(name, Bundle(ragged), shared_device, alone)


def _check_rows(name: str, bundle: Bundle, device: str, alone: Path | None) -> None:
    """Rows of one batch against transformers, a batch of one, and a bundle without rings where there is one."""
    case, prompts = CASES[name], _prompts(name)
    with bundle.session(device) as session:
        model = BundleBatch(bundle, session)
        generated, logits = _generated(model, prompts, case.steps)
        calls = -(-len(prompts[1]) // 3), case.steps - 1
        assert session.counters.calls == sum(calls)
        beyond = np.full(_BATCH, model.capacity, np.int32)
        with pytest.raises(
            InputError, match=f"'decode': argument 'position': expected 0 to {model.capacity - 1}; found"
        ):
            model.decode(np.zeros(_BATCH, np.int32), beyond)
        assert session.counters.bytes_guarded == 0
        ends = {-(-len(prompt) // 3) for prompt in prompts}  # of the calls of prefill, what ends no prompt is not read
        assert session.counters.bytes_out == (len(ends) + calls[1]) * _BATCH * (4 * model.vocabulary + 4)
        caches = sum(a.spec.nbytes for a in bundle.entry_point("prefill").arguments if a.donated)
        per_call = [
            sum(a.spec.nbytes for a in bundle.entry_point(e).arguments if not a.donated) for e in ("prefill", "decode")
        ]
        assert session.counters.bytes_in == caches + np.dot(calls, per_call)
    golden = read_golden(name)
    assert generated[1] == golden.tokens[0].tolist()
    error = np.abs(np.stack(logits[1]) - golden.logits[0]).max(-1) / np.abs(golden.logits[0]).max(-1)
    assert error.max() < 2e-4
    for prompt, tokens, mine in zip(prompts, generated, logits, strict=True):
        with bundle.session(device) as session:
            ((expected,), (theirs,)) = _generated(BundleBatch(bundle, session), [prompt], case.steps)
        assert tokens == expected
        np.testing.assert_array_equal(mine, theirs)
    if alone is not None:
        for prompt, tokens in zip(prompts, generated, strict=True):
            assert tokens == greedy(alone, device, prompt, case.steps)[0]


def _generated(
    model: BundleBatch, prompts: Sequence[Sequence[int]], steps: int
) -> tuple[list[list[int]], list[list[np.ndarray]]]:
    """Tokens and logits of every prompt."""
    samplers = [Sampler(SamplingConfig(), model.vocabulary) for _ in prompts]
    generated: list[list[int]] = [[] for _ in prompts]
    logits: list[list[np.ndarray]] = [[] for _ in prompts]
    for row, step in generate_batch(model, prompts, samplers, StopRule(frozenset(), steps)):
        generated[row].append(step.token_id)
        logits[row].append(step.logits)
    return generated, logits


def _check_described(ragged: Path, alone: Path) -> None:
    """Results that reuse a buffer do so in the ragged bundle too; the report says how much rings save."""
    for name in ("prefill", "decode"):
        arguments = Bundle(ragged).entry_point(name).arguments
        assert all(a.in_place for a in arguments if a.name.endswith("_cache"))
        assert all(a.effective == "IN" and not a.guarded for a in arguments if not a.donated)
    described, plain = (json.loads((folder / "kernel_config.json").read_text())["model"] for folder in (ragged, alone))
    caching = described["caching"]
    assert (caching["positions"], caching["window_caches"]) == ("per_row", "ring")
    assert (plain["caching"]["positions"], plain["caching"]["window_caches"]) == ("shared", "whole")
    assert plain["caching"]["bytes"] == plain["caching"]["bytes_if_whole"]
    assert caching["bytes_if_whole"] == _BATCH * plain["caching"]["bytes"]
    assert (caching["bytes"] < caching["bytes_if_whole"]) == any(described["windows"])
    assert json.loads((ragged / "report.json").read_text())["caches"] == {
        name: caching[name] for name in ("bytes", "bytes_if_whole")
    }


@pytest.mark.skipif(_DEVICE != "local-task", reason="the interpreter is the same for every device")
@pytest.mark.parametrize(
    ("name", "entry_points", "options"),
    [
        ("gemma3", ("prefill", "decode", "score"), {"score_tokens": 2}),
        ("qwen3_next_mixed_4x", ("prefill", "decode"), {}),
    ],
)
def test_an_export_holds_them_to_the_interpreter(
    name: str, entry_points: Sequence[str], options: dict[str, Any], tmp_path: Path
) -> None:
    bundle = export_case(
        CASES[name],
        tmp_path,
        entry_points=tuple(entry_points),
        batch=3,
        positions="per_row",
        sequence=3,
        max_sequence=14,
        target=(),
        verify="interpreter",
        **options,
    )
    rows = json.loads((bundle / "report.json").read_text())["verification"]
    assert {row["entry_point"] for row in rows} == set(entry_points)
    assert all(row["max_rel"] < 1e-4 for row in rows)
