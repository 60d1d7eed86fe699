"""Streamed text is buffered text for every family of decoders."""

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import EntryPoint
from tests.goldens.cases import CASES, GoldenCase
from transformer_core.models import DecoderConfig, DecoderLM, architectures, entry_points

_ONE_EACH = {case.config["architectures"][0]: case for case in reversed(CASES.values())}


def _lowered(points: tuple[EntryPoint, ...], streaming: bool, block_functions: bool) -> str:
    pieces: list[str] = []
    lower_module(points, pieces.append, ExternalParameters(), streaming=streaming, block_functions=block_functions)
    return "".join(pieces)


@pytest.mark.parametrize("block_functions", [False, True])
@pytest.mark.parametrize("case", _ONE_EACH.values(), ids=_ONE_EACH)
def test_a_familys_entry_points(case: GoldenCase, block_functions: bool) -> None:
    model = DecoderLM(DecoderConfig.from_hf(case.config))
    points = entry_points(model, names=("forward", "prefill", "decode"), sequence=6, max_sequence=16)
    assert _lowered(points, True, block_functions) == _lowered(points, False, block_functions)


def test_every_family_has_a_case() -> None:
    assert set(_ONE_EACH) == set(architectures())
