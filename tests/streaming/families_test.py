"""Streamed text is buffered text for every family of models."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import EntryPoint
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import write_config
from tests.goldens.vision_language.cases import CASES as SEEING
from tests.goldens.vision_language.cases import VisionLanguageCase
from tests.goldens.wrapped_cases import WRAPPED, wrapped_config
from tests.streaming._reference import lower_graphs
from transformer_core.models import architectures, entry_points, load_model

_WHOLE = (replace(CASES[name], config=wrapped_config(architecture)) for architecture, (_, name) in WRAPPED.items())
_ALL = (*CASES.values(), *_WHOLE, *ENCODER_CASES.values(), *SEEING.values())
_ONE_EACH: dict[str, GoldenCase | EncoderCase | VisionLanguageCase] = {
    case.config["architectures"][0]: case for case in reversed(_ALL)
}


def _lowered(points: tuple[EntryPoint, ...], streaming: bool, block_functions: bool) -> str:
    pieces: list[str] = []
    lower_module(points, pieces.append, ExternalParameters(), streaming=streaming, block_functions=block_functions)
    return "".join(pieces)


# Without functions for blocks every fourth family; with TAPELINE_LONG=1 all.
_FLAT = list(_ONE_EACH)[:: 1 if os.environ.get("TAPELINE_LONG") else 4]


@pytest.mark.parametrize(
    ("case", "block_functions"),
    [
        *[pytest.param(case, True, id=f"{name}-blocks") for name, case in _ONE_EACH.items()],
        *[pytest.param(_ONE_EACH[name], False, id=f"{name}-flat") for name in _FLAT],
    ],
)
def test_a_familys_entry_points(
    case: GoldenCase | EncoderCase | VisionLanguageCase, block_functions: bool, tmp_path: Path
) -> None:
    if isinstance(case, EncoderCase):
        write_config(tmp_path, case)
        model = load_model(tmp_path)
        points = entry_points(model, names=model.ENTRY_POINTS, batch=2)
    else:
        (tmp_path / "config.json").write_text(json.dumps(case.config))
        model = load_model(tmp_path)
        points = entry_points(model, names=model.ENTRY_POINTS, sequence=6, max_sequence=16)
    text = _lowered(points, True, block_functions)
    assert text == _lowered(points, False, block_functions)
    assert text == lower_graphs(points, ExternalParameters(), block_functions=block_functions)[0]


def test_every_family_has_a_case() -> None:
    assert set(_ONE_EACH) == set(architectures())
