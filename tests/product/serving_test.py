"""The engine on a bundle with slots: every answer is that of the request alone, bit for bit."""

import os
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generation.engine import EndEvent, Engine, EngineSettings, TokenRequest, canonical_pieces
from generation.engine._reference_testing import (
    PictureKind,
    Received,
    alone,
    follow_up,
    random_requests,
    with_pictures,
)
from run_iree import target_of_device
from tapeline.bundle import Bundle
from tapeline.runners import BundleSlots, open_slots
from tests.goldens.cases import CASES
from tests.goldens.vision_language.cases import CASES as SEEING
from tests.goldens.vision_language.cases import IMAGE_TOKEN
from tests.goldens.vision_language.files import read_vision_language_manifest, write_vision_language_checkpoint
from tests.product import _bundles
from tests.product._bundles import ON_FAST_DEVICES, export, export_case

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_LONG = os.environ.get("TAPELINE_LONG") == "1"
_COUNT = 1000 if _LONG else 24
_ALL = _LONG and _DEVICE == "local-task"  # elsewhere a request takes a second, so that all models would take a day
compiled_once = _bundles.compiled_once
pytestmark = [ON_FAST_DEVICES, pytest.mark.usefixtures("compiled_once")]

_FEW = ["demo", "qwen3_next_mixed_4x"]  # of the second, bits go by the row where vectors have eight numbers
_MODELS = [*_FEW, *(["demo_q8_0", "llama_gqa", "mamba2_4x", "falcon_h1_normed_4x", "gemma3_4x", "smolvlm"] * _ALL)]


def _bundle(name: str, folder: Path) -> Bundle:
    options: Any = {"slots": 3, "target": (target_of_device(_DEVICE),), "sequence": 32, "max_sequence": 96}
    if name in SEEING:
        (folder / "model").mkdir()
        shapes = read_vision_language_manifest()["cases"][name]["shapes"]
        write_vision_language_checkpoint(folder / "model", SEEING[name], shapes)
        return Bundle(export(folder / "model", folder / "bundle", **options))
    if name == "demo_q8_0":
        return Bundle(
            export("demo", folder / "bundle", num_layers=1, quantize="q8_0", activations="q8", verify="auto", **options)
        )
    if name == "demo":
        layers = {"num_layers": None if _ALL else 1, "verify_tokens": 4}  # as in paged_slots_test
        return Bundle(export("demo", folder / "bundle", **layers, **options))
    return Bundle(export_case(CASES[name], folder, **options))


class _Load:
    """Requests to an engine, some at once, others when an answer has ended; some leave early."""

    def __init__(self, engine: Engine, slots: BundleSlots) -> None:
        self.made: list[tuple[Callable[[], TokenRequest], Received]] = []
        self._engine = engine
        self._slots = slots
        self._makes = random_requests(3, _COUNT, slots.vocabulary, slots.capacity)
        self._random = np.random.default_rng(3)
        if slots.seeing:
            pool = self._random.standard_normal((4, 3, 24, 24)).astype(np.float32)
            kind = PictureKind(IMAGE_TOKEN, SEEING["smolvlm"].image_tokens, list(pool))
            self._makes = [with_pictures(make, self._random, kind) for make in self._makes]
        self._ends: queue.Queue[int] = queue.Queue()

    def run(self) -> None:
        while len(self.made) < _COUNT:
            for _ in range(int(self._random.integers(1, 5))):
                self._submit(self._next())
            self._ends.get(timeout=60)
        assert self._engine.drain(3600)

    def _submit(self, make: Callable[[], TokenRequest]) -> None:
        received = Received()
        number = len(self.made)
        leaves_after = int(self._random.integers(1, 9)) if self._random.random() < 0.15 else None

        def on_event(event: Any) -> None:
            received(event)
            if isinstance(event, EndEvent):
                self._ends.put(number)
            if len(received.events) == leaves_after:
                ticket.cancel()

        self.made.append((make, received))
        ticket = self._engine.submit(make(), on_event)

    def _next(self) -> Callable[[], TokenRequest]:
        done = [(make, received) for make, received in self.made if received.ended]
        if done and self._random.random() < 0.3:
            make, received = done[self._random.integers(0, len(done))]
            request = follow_up(make(), received)
            if len(request.prompt) + request.max_new_tokens <= self._slots.capacity:
                return lambda: request
        return self._makes[int(self._random.integers(0, len(self._makes)))]


@pytest.mark.parametrize("name", _MODELS)
def test_answers_are_those_of_requests_alone(name: str, tmp_path: Path) -> None:
    bundle = _bundle(name, tmp_path)
    with bundle.session(_DEVICE) as session, bundle.session(_DEVICE) as other_session:
        slots = open_slots(bundle, session)
        lonely = BundleSlots(bundle, other_session, invariance=slots.invariance)
        settings = EngineSettings(max_waiting=_COUNT + 9, store_bytes=1 << 20, block_tokens=8, deadline=None)
        engine = Engine(slots, settings)
        load = _Load(engine, slots)
        load.run()
        engine.close()
        figures = engine.figures()
        assert figures.failures == 0
        assert figures.prefix_hits > 0
        assert figures.store_bytes <= 1 << 20
        for make, received in load.made:
            _check(make(), received, lonely)


def _check(request: TokenRequest, received: Received, lonely: BundleSlots) -> None:
    tokens, reason, scored = alone(lonely, request, canonical_pieces(len(request.prompt), lonely.chunks))
    if received.end.reason == "cancelled":
        tokens = tokens[: len(received.tokens)]
    else:
        assert received.end.reason == reason
    assert received.tokens == tokens
    assert received.prompt in (scored, None)
