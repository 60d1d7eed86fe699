"""Bundles with quantized KV caches, whose rows are pages: on devices, and by XLA."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from lang_core import ConfigError, InputError
from run_iree import target_of_device
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.runners import BundleSlots
from tests.goldens.kv_cache_cases import KV_CACHE_CASES, kv_cache_path
from tests.product._bundles import ON_FAST_DEVICES, export, export_case

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_ENCODING = "q8_0"
_CASE = KV_CACHE_CASES[0]
_TOLERANCE = 5e-3  # a number between two integers may be rounded to either: 2e-3; unrounded caches are off by 1e-2
pytestmark = ON_FAST_DEVICES


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    sizes: Any = {"slots": 2, "pages": 6, "page_tokens": 16, "sequence": 4, "max_sequence": 48, "kv_cache": _ENCODING}
    return Bundle(export_case(_CASE, tmp_path_factory.mktemp("kv"), **sizes, target=(target_of_device(_DEVICE),)))


@pytest.mark.parametrize("place", [Place(device=_DEVICE), Place("jax")], ids=["device", "jax"])
def test_rows_of_pages_say_what_a_rounded_cache_says(paged: Bundle, place: Place) -> None:
    golden = dict(np.load(kv_cache_path(_CASE, _ENCODING)))
    prompt, tokens = golden["prompt"][0].tolist(), golden["tokens"][0].tolist()
    with open_session(paged, place) as session:
        slots, logits = BundleSlots(paged, session), []
        assert slots.pages is not None
        prediction = slots.prefill_row([3, 4, 5, 6], 0, 0)  # the pages of row 1 are not the first
        for start in range(0, len(prompt), 4):
            prediction = slots.prefill_row(prompt[start : start + 4], 1, start)
        logits.append(prediction.logits().copy())
        kept = slots.read_row(1, 0, len(prompt))
        assert {array.dtype for array in kept} == {np.dtype(np.int8)}
        slots.clear_row(1)
        slots.write_row(1, 0, kept)  # as a prefix cache does, on disk too
        for position, token in enumerate(tokens[:-1], len(prompt)):
            predictions = slots.decode([1], [token], [position])
            logits.append(predictions[0].logits().copy())
    for step, line in enumerate(logits):
        expected = golden["logits"][0, step]
        assert np.abs(line - expected).max() / np.abs(expected).max() < _TOLERANCE, f"step {step}"


def test_it_is_described_and_takes_a_quarter_of_f32(paged: Bundle) -> None:
    model = paged.config.model
    assert model["caching"]["kv_cache"] == _ENCODING
    heads, size, layers = 2, 32, 3
    assert model["caching"]["bytes"] == layers * 2 * model["pages"] * model["page_tokens"] * heads * (size + 2)


def test_it_agrees_with_the_eager_context(paged: Bundle) -> None:
    comparison = tapeline.compare_bundles(paged, device=_DEVICE, inside="never")
    assert comparison.first is None
    assert {str(row.reference)[:3] for row in comparison.tensors if row.label.name.endswith("_cache")} == {"f32"}


def test_other_caches_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 16 numbers per head, and blocks are of 32: leave out kv_cache"):
        export("demo", tmp_path / "demo", kv_cache="q8_0", verify="none", target=())
    with pytest.raises(InputError, match=r"kv_cache=q8: unknown 'q8': known are q8_0, q4_0"):
        tapeline.export("demo", tmp_path / "demo", kv_cache="q8")
