"""The server's engine on a bundle in JAX: every answer is that of the request alone, bit for bit."""

import os
from pathlib import Path
from typing import Any

import pytest

from generation.engine import Engine, EngineSettings, canonical_pieces
from generation.engine._reference_testing import Received, alone, random_requests
from tapeline.backends import Place, open_session
from tapeline.bundle import Bundle
from tapeline.runners import BundleSlots, open_slots
from tests.product._bundles import export

_COUNT = 5
_LONG = bool(os.environ.get("TAPELINE_LONG"))


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param({}, id="rows", marks=pytest.mark.skipif(not _LONG, reason="slots of rows: TAPELINE_LONG=1")),
        pytest.param({"pages": 8, "page_tokens": 16}, id="pages"),
    ],
)
def test_answers_are_those_of_requests_alone(pages: dict[str, int], tmp_path: Path) -> None:
    sizes: Any = {"num_layers": 1, "slots": 3, "max_sequence": 64, "target": (), **pages}
    bundle = Bundle(export("demo", tmp_path / "bundle", **sizes))
    with open_session(bundle, Place("jax")) as session, open_session(bundle, Place("jax")) as other:
        slots = open_slots(bundle, session)
        lonely = BundleSlots(bundle, other, invariance=slots.invariance)
        assert not slots.invariant
        engine = Engine(slots, EngineSettings(max_waiting=_COUNT))
        made = [(make, Received()) for make in random_requests(5, _COUNT, slots.vocabulary, slots.capacity)]
        for make, received in made:
            engine.submit(make(), received)
        assert engine.drain(600)
        engine.close()
        assert engine.figures().failures == 0
        for make, received in made:
            pieces = canonical_pieces(len(make().prompt), lonely.chunks)
            tokens, reason, scored = alone(lonely, make(), pieces)
            assert (received.tokens, received.end.reason) == (tokens, reason)
            assert received.prompt in (scored, None)
