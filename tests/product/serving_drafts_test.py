"""Drafts of a server's rows on a device: the answers are those without them, bit for bit."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from generation.engine import EndEvent, Engine, TokenRequest, canonical_pieces
from generation.engine._reference_testing import Received, alone, random_requests
from lang_core import ConfigError, InputError
from run_iree import target_of_device
from tapeline.backends import Place
from tapeline.bundle import MARK, Bundle
from tapeline.runners import BundleSlots, open_slots
from tapeline.running import row_drafting
from tests.product import _bundles
from tests.product._bundles import ON_FAST_DEVICES, export

_DEVICE = os.environ.get("TAPELINE_DEVICE", "local-task")
_COUNT = 200 if os.environ.get("TAPELINE_LONG") == "1" else 24
# As in paged_slots_test.
_SIZES: Any = {"slots": 3, "sequence": 32, "verify_tokens": 4, "max_sequence": 96, "num_layers": 1}
compiled_once = _bundles.compiled_once
pytestmark = [ON_FAST_DEVICES, pytest.mark.usefixtures("compiled_once")]


@pytest.fixture(scope="module")
def bundle(compiled_once: None, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    del compiled_once
    folder = tmp_path_factory.mktemp("drafts") / "bundle"
    return Bundle(export("demo", folder, target=(target_of_device(_DEVICE),), **_SIZES))


@pytest.fixture(scope="module")
def lonely(bundle: Bundle) -> Iterator[BundleSlots]:
    with bundle.session(_DEVICE) as session:
        yield open_slots(bundle, session)


@pytest.mark.parametrize("drafts", [False, True], ids=["lookup", "draft"])
def test_answers_are_those_without_drafts(bundle: Bundle, lonely: BundleSlots, drafts: bool) -> None:
    place, said = Place(device=_DEVICE), None if drafts else "prompt_lookup:2"
    with (
        bundle.session(_DEVICE) as session,
        row_drafting(bundle, place, said, bundle.path if drafts else None, rows=2) as drafting,
    ):
        slots = BundleSlots(bundle, session, invariance=lonely.invariance)
        if not lonely.invariant:
            with pytest.raises(ConfigError, match="a token's bits depend on the call"):
                Engine(slots, drafting=drafting)
            return
        engine = Engine(slots, drafting=drafting)
        made = [(make, Received()) for make in random_requests(9, _COUNT, slots.vocabulary, slots.capacity)]
        for make, received in made:
            engine.submit(make(), received)
        assert engine.drain(600)
        engine.close()
        figures = engine.figures()
    for make, received in made:
        _check(make(), received, lonely)
    assert figures.failures == 0
    assert 0 < figures.accepted_tokens <= figures.draft_tokens


def _check(request: TokenRequest, received: Received, lonely: BundleSlots) -> None:
    tokens, reason, _ = alone(lonely, request, canonical_pieces(len(request.prompt), lonely.chunks))
    assert received.tokens == tokens
    assert isinstance(received.end, EndEvent)
    assert received.end.reason == reason


def test_what_does_not_go_together_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    fewer = Path(shutil.copytree(bundle.path, tmp_path / "fewer"))
    config = json.loads((fewer / MARK).read_text())
    config["model"]["slots"] = 1
    del config["seals"]["fields"]  # as in a bundle of an earlier version
    (fewer / MARK).write_text(json.dumps(config))
    for given, message in [
        (("mtp", None), "speculate=mtp: a multi-token prediction head works on one prompt"),
        (("guess", None), "speculate=guess: expected prompt_lookup"),
        (("prompt_lookup", bundle.path), "are two ways to get drafts: give one of them"),
        ((None, fewer), r"has 1 slots, and .* has 3: export the draft with slots=3"),
    ]:
        with pytest.raises(InputError, match=message), row_drafting(bundle, Place(device=_DEVICE), *given):
            raise AssertionError(f"{given} was taken")
