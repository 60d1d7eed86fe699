"""Bundles with slots on a device: each row says what transformers says, whatever the others do."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import InputError
from run_iree import available, target_of_device
from run_iree._device_testing import sharing
from tapeline.bundle import Bundle
from tapeline.runners import BundleSlots, Invariance, measured_invariance, open_slots
from tests.goldens.cases import CASES
from tests.goldens.golden_files import read_golden
from tests.product import _bundles
from tests.product._bundles import ON_FAST_DEVICES, export_case

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_HERE = [
    pytest.param(_DEVICE, marks=() if available(_DEVICE)[0] else pytest.mark.skip(reason=available(_DEVICE)[1])),
]
_STATES = ["qwen3_next_mixed_4x", "mamba2_4x", "falcon_h1_normed_4x"]
_NAMES = ["llama_gqa", *(_STATES if os.environ.get("TAPELINE_LONG") else [])]
_CASE = CASES["llama_gqa"]
_SIZES: Any = {"slots": 3, "max_sequence": len(_CASE.prompt[0]) + 5}  # all tests share one compilation
compiled_once = _bundles.compiled_once
pytestmark = [ON_FAST_DEVICES, pytest.mark.usefixtures("compiled_once")]


@pytest.mark.parametrize("device", _HERE)
@pytest.mark.parametrize("name", _NAMES)
def test_rows_say_what_transformers_says(name: str, device: str, tmp_path: Path) -> None:
    """The export verifies every entry point."""
    case = CASES[name]
    options: Any = {"max_sequence": len(case.prompt[0]) + 5, "target": (target_of_device(device),)}
    bundle = Bundle(export_case(case, tmp_path, slots=3, verify="auto", **options))
    described = bundle.config.model
    assert list(described["invariant"]) == list(described["row_invariant"]) == [target_of_device(device)]
    assert (described["slots"], described["chunks"]) == (3, sorted({8, described["max_sequence"]}))
    for shared_device in sharing(device):
        with bundle.session(shared_device) as session:
            _check_rows(name, BundleSlots(bundle, session))
            assert session.counters.bytes_guarded == 0


def _check_rows(name: str, slots: BundleSlots) -> None:
    golden = read_golden(name)
    prompt, steps = golden.prompt[0].tolist(), 3
    assert (slots.slots, slots.capacity) == (3, len(prompt) + 5)
    slots.prefill_row(prompt[::-1][:6], 2, 0)
    slots.clear_row(2)
    slots.prefill_row(prompt[:3], 2, 0)
    slots.prefill_row(prompt[5:9], 0, 0)
    prediction = slots.prefill_row(prompt[3:], 2, 3)
    slots.copy_row(2, 1)
    slots.copy_row(2, 2)
    for step in range(steps):
        expected, token = golden.logits[0, step], int(golden.tokens[0, step])
        assert np.abs(prediction.logits() - expected).max() < 2e-4 * np.abs(expected).max()
        assert prediction.likeliest() == token
        position = len(prompt) + step
        count = min(step + 1, 2 if slots.recurrent else 3)  # a state of row 1 would go on for good
        predictions = slots.decode((2, 0, 1)[:count], (token, 5, token)[:count], (position, 4 + step, position)[:count])
        prediction = predictions[0]
    _check_copies(slots, len(prompt))
    first = int(golden.tokens[0, 0])
    prediction = slots.decode((1,), (first,), (len(prompt),))[0]  # where row 1 went on, or did not: it is a copy
    assert np.abs(prediction.logits() - golden.logits[0, 1]).max() < 2e-4 * np.abs(golden.logits[0, 1]).max()


def _check_copies(slots: BundleSlots, count: int) -> None:
    """Reads a row and writes it into another one, in pieces where rows have positions: that is its copy then."""
    whole = slots.read_row(1, 0, count)
    for array in whole:
        assert array.any()
    if not slots.recurrent:
        slots.write_row(0, 0, slots.read_row(1, 0, 3))
        slots.write_row(0, 3, slots.read_row(1, 3, count))
    else:
        slots.write_row(0, 0, whole)
    for mine, theirs in zip(whole, slots.read_row(0, 0, count), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(InputError, match=f"a row has positions 0 to {slots.capacity}; found 3 to 2"):
        slots.read_row(0, 3, 2)
    with pytest.raises(InputError, match="rows are 0 to 2; found -1"):
        slots.write_row(-1, 0, whole)


def test_what_was_not_verified_is_measured(tmp_path: Path) -> None:
    bundle = Bundle(export_case(_CASE, tmp_path, **_SIZES))
    assert bundle.config.model["invariant"] == bundle.config.model["row_invariant"] == {}
    with bundle.session("local-task") as session:
        assert BundleSlots(bundle, session).invariance is Invariance.NONE
        assert open_slots(bundle, session).invariance is measured_invariance(bundle, session)
        assert BundleSlots(bundle, session, invariance=Invariance.CALLS).invariant


def test_rows_run_one_by_one_where_their_bits_are_not_known_to_be_the_same(tmp_path: Path) -> None:
    bundle = Bundle(export_case(_CASE, tmp_path, **_SIZES))
    with bundle.session("local-task") as session:
        slots = BundleSlots(bundle, session)
        for row in range(3):
            slots.prefill_row([5, 3, 7 + row], row, 0)
        slots.copy_row(0, 2)
        calls = session.counters.calls
        last, first = (prediction.logits() for prediction in slots.decode((2, 0), (4, 4), (3, 3)))
        assert session.counters.calls == calls + 2
        np.testing.assert_array_equal(last, first)
        assert slots.decode((1, 0), (4, 4), (3, 4))[0].logits().tobytes() != first.tobytes()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    bundle, most = Bundle(export_case(_CASE, tmp_path / "slots", **_SIZES)), _SIZES["max_sequence"]
    with bundle.session("local-task") as session:
        slots = BundleSlots(bundle, session)
        for tokens in ([], [1] * (most + 1)):
            with pytest.raises(InputError, match=f"expected 1 to {most} tokens; found {len(tokens)}: cut the prompt"):
                slots.prefill_row(tokens, 0, 0)
        with pytest.raises(InputError, match=f"3 tokens at position {most - 2} do not fit into {most} positions"):
            slots.prefill_row([1, 2, 3], 0, most - 2)
        for rows in ([], [1, 1]):
            with pytest.raises(InputError, match="decode: expected at least one row, each once"):
                slots.decode(rows, rows, rows)
        with pytest.raises(InputError, match="argument 'row': expected 0 to 2; found 3"):
            slots.prefill_row([1], 3, 0)
    plain = Bundle(export_case(CASES["llama_gqa"], tmp_path / "plain", max_sequence=12))
    with plain.session("local-task") as session, pytest.raises(InputError, match="export with slots=8"):
        BundleSlots(plain, session)
