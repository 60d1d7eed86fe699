"""Bundles whose rows are pages: the bits of rows that have all positions, in less memory."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapeline
from generation.engine import Engine, EngineSettings, PagesError, canonical_pieces
from generation.engine._reference_testing import Received, alone, random_requests
from lang_core import ConfigError, DeviceError, InputError
from run_iree import target_of_device
from tapeline.backends import Place
from tapeline.bundle import Bundle
from tapeline.runners import BundleSlots
from tapeline.running import row_drafting
from tests.goldens.cases import CASES
from tests.product import _bundles
from tests.product._bundles import ON_FAST_DEVICES, export, export_case

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_LONG = os.environ.get("TAPELINE_LONG") == "1"
_COUNT = 400 if _LONG else 16
_SIZES: Any = {"slots": 3, "sequence": 32, "max_sequence": 96, "num_layers": 1}
_PAGES: Any = {"pages": 14, "page_tokens": 16}
compiled_once = _bundles.compiled_once  # serving_test and serving_drafts_test share the compilation of whole rows
pytestmark = [ON_FAST_DEVICES, pytest.mark.usefixtures("compiled_once")]


@pytest.fixture(scope="module")
def bundles(compiled_once: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Bundle]:
    """A bundle whose rows have all positions, and the same with pages."""
    del compiled_once
    folder, target = tmp_path_factory.mktemp("pages"), (target_of_device(_DEVICE),)
    options: Any = {**_SIZES, "target": target, "verify_tokens": 4, "verify": "auto"}
    whole = Bundle(export("demo", folder / "whole", **options))
    return whole, Bundle(export("demo", folder / "paged", **options, **_PAGES))


def test_pages_take_less_memory_and_are_described(bundles: tuple[Bundle, Bundle]) -> None:
    whole, paged = (bundle.config.model for bundle in bundles)
    assert (paged["pages"], paged["page_tokens"], "pages" in whole) == (14, 16, False)
    assert paged["caching"]["bytes"] * 18 == whole["caching"]["bytes"] * 14
    assert (paged["invariant"], paged["row_invariant"]) == (whole["invariant"], whole["row_invariant"])


def test_rows_of_pages_have_the_bits_of_whole_rows(bundles: tuple[Bundle, Bundle]) -> None:
    random = np.random.default_rng(2)
    with bundles[0].session(_DEVICE) as session, bundles[1].session(_DEVICE) as other:
        both = BundleSlots(bundles[0], session), BundleSlots(bundles[1], other)
        assert both[0].position_bytes == both[1].position_bytes
        filled = [0, 0, 0]
        for step in range(120 if _LONG else 30):
            row, kind = int(random.integers(3)), step % 5
            if kind == 0:
                filled[row] = min(filled[row], int(random.integers(0, 40)))
                tokens = random.integers(0, 100, random.integers(1, 30)).tolist()
                _check(both, lambda slots, row=row, at=filled[row], tokens=tokens: [slots.prefill_row(tokens, row, at)])
                filled[row] += len(tokens)
            elif kind == 1 and filled[row]:
                other_row, count = (row + 1) % 3, int(random.integers(1, filled[row] + 1))
                for slots in both:
                    slots.copy_row(row, other_row, count)
                filled[other_row] = count
            elif kind == 2 and filled[row] < 90:
                tokens = random.integers(0, 100, 3).tolist()
                _check(both, lambda slots, row=row, at=filled[row], tokens=tokens: slots.verify_row(tokens, row, at))
                filled[row] += 2
            elif kind == 3 and filled[row]:
                start = int(random.integers(0, filled[row]))
                arrays = [slots.read_row(row, start, filled[row]) for slots in both]
                for one, two in zip(*arrays, strict=True):
                    np.testing.assert_array_equal(one, two)
                for slots, kept in zip(both, arrays, strict=True):
                    slots.write_row(row, start, kept)
            else:
                rows = [row for row in range(3) if 0 < filled[row] < 90]
                positions = [filled[row] for row in rows]
                if rows:
                    _check(both, lambda slots, rows=rows, at=positions: slots.decode(rows, rows, at))
                filled = [count + (row in rows) for row, count in enumerate(filled)]
            if sum(filled) > 120:
                row = int(np.argmax(filled))
                filled[row] = 0
                for slots in both:
                    slots.clear_row(row)


def _check(both: Sequence[BundleSlots], run: Callable[[BundleSlots], Sequence[Any]]) -> None:
    one, two = ([prediction.logits().copy() for prediction in run(slots)] for slots in both)
    np.testing.assert_array_equal(one, two)


def test_answers_from_few_pages_are_those_of_requests_alone_in_whole_rows(bundles: tuple[Bundle, Bundle]) -> None:
    with bundles[0].session(_DEVICE) as session, bundles[1].session(_DEVICE) as other:
        lonely, slots = BundleSlots(bundles[0], session), BundleSlots(bundles[1], other)
        engine = Engine(slots, EngineSettings(max_waiting=_COUNT, store_bytes=1 << 20, block_tokens=8))
        made = [(make, Received()) for make in random_requests(5, _COUNT, slots.vocabulary, slots.capacity)]
        for make, received in made:
            engine.submit(make(), received)
        assert engine.drain(3600)
        engine.close()
        assert engine.figures().prefix_hits > 0
        for make, received in made:
            request = make()
            pieces = canonical_pieces(len(request.prompt), lonely.chunks)
            tokens, reason, scored = alone(lonely, request, pieces)
            assert (received.tokens, received.end.reason) == (tokens, reason)
            assert received.prompt in (scored, None)


def test_pages_that_are_not_there_are_refused_before_the_call(bundles: tuple[Bundle, Bundle]) -> None:
    paged = bundles[1]
    with paged.session(_DEVICE) as session:
        slots = BundleSlots(paged, session)
        slots.prefill_row([1, 2, 3], 0, 0)
        with pytest.raises(PagesError, match=r"row 1 has 0 pages, and is written at position 20: write those before"):
            slots.decode([1], [1], [20])
        for row in (0, 1):
            slots.write_row(row, 0, _zeros(slots, 90))
        with pytest.raises(PagesError, match=r"row 2 needs a page, and of 13 0 are free"):
            slots.write_row(2, 0, _zeros(slots, 30))
        point = paged.entry_point("decode_1")
        given = [np.zeros(argument.spec.shape, argument.spec.dtype.numpy) for argument in point.arguments]
        given[1][0, 3] = 14
        with pytest.raises((DeviceError, InputError), match=r"pages.*14"):
            session.function("decode_1")(*given)


def test_a_bundle_of_pages_generates_for_one_prompt_and_drafts_for_none(bundles: tuple[Bundle, Bundle]) -> None:
    whole, paged = bundles
    texts = set()
    for bundle in bundles:
        with tapeline.load(bundle.path, device=_DEVICE) as model:
            texts.add(model.generate("It was the best", max_new_tokens=40).text)
    assert len(texts) == 1
    with (
        pytest.raises(InputError, match="has pages, and a row of drafts reserves none: export it without"),
        row_drafting(whole, Place(device=_DEVICE), None, paged.path),
    ):
        pass


def _zeros(slots: BundleSlots, count: int) -> Sequence[np.ndarray]:
    """Returns entries of so many positions in every cache."""
    return [np.repeat(array, count, axis=1) * 0 for array in slots.read_row(0, 0, 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": None, **_PAGES}, r"pages=14 without slots: pages are shared by the slots of a server"),
        ({**_PAGES, "page_tokens": 24}, r"page_tokens=24: kernels read 16 positions at a time: choose a multiple"),
        (
            {**_PAGES, "page_tokens": 64},
            r"page_tokens: expected a part of max_sequence \(96\).*choose max_sequence=128",
        ),
        (
            {**_PAGES, "page_tokens": 96},
            r"page_tokens: expected a part of max_sequence \(96\).*choose max_sequence=192",
        ),
        (
            {**_PAGES, "pages": 8},
            r"pages: expected at least 9, which are those of one sequence of 96 positions.*found 8",
        ),
    ],
)
def test_pages_that_no_row_could_use_are_refused(options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        export("demo", tmp_path / "bundle", target=(), weights="none", **{**_SIZES, **options})


@pytest.mark.parametrize(
    ("name", "caches", "message"),
    [
        ("qwen3_next_mixed_4x", None, r"keeps .*state, and pages hold keys and values alone: leave pages out"),
        ("gemma3_4x", "ring", r"would keep a ring of .*, which has no pages: choose window_caches=whole"),
    ],
)
def test_states_and_rings_are_no_pages(name: str, caches: str | None, message: str, tmp_path: Path) -> None:
    options: Any = {"slots": 2, "sequence": 16, "max_sequence": 64, "target": (), "verify": "none"}
    options["window_caches"] = caches
    with pytest.raises(ConfigError, match=message):
        export_case(CASES[name], tmp_path, pages=9, page_tokens=16, **options)


def test_pages_of_layers_with_windows_hold_every_position(tmp_path: Path) -> None:
    options: Any = {"slots": 2, "sequence": 16, "max_sequence": 80, "target": ("llvm-cpu",), "verify": "iree"}
    model = export_case(CASES["gemma3_4x"], tmp_path, pages=9, **options)
    config = json.loads((model / "kernel_config.json").read_text())["model"]
    assert (config["caching"]["window_caches"], config["page_tokens"]) == ("whole", 16)
