"""Streamed text is buffered text for every family of models."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import EntryPoint
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.encoders.cases import ENCODER_CASES, EncoderCase
from tests.goldens.encoders.files import write_config
from tests.goldens.own_decoder_forms import AUTHORS, GGUF_ALONE, authors_config
from tests.goldens.published_forms import FORMS
from tests.goldens.samples import BY_STRUCTURE, LONG
from tests.goldens.vision_language.cases import CASES as SEEING
from tests.goldens.vision_language.cases import VisionLanguageCase
from tests.goldens.wrapped_cases import WRAPPED, wrapped_config
from tests.streaming._reference import lower_graphs
from transformer_core.models import architectures, entry_points, load_model

_WHOLE = (replace(CASES[name], config=wrapped_config(architecture)) for architecture, (_, name) in WRAPPED.items())
_PUBLISHED = (
    replace(CASES[name], config={**config(CASES[name].config), "architectures": [architecture]})
    for architecture, (name, _, config) in FORMS.items()
)
_OWN = (replace(CASES["llama_gqa"], config=authors_config(name)) for name in (*AUTHORS, *GGUF_ALONE))
_ALL = (*CASES.values(), *_WHOLE, *_PUBLISHED, *_OWN, *ENCODER_CASES.values(), *SEEING.values())
_ONE_EACH: dict[str, GoldenCase | EncoderCase | VisionLanguageCase] = {
    case.config["architectures"][0]: case for case in reversed(_ALL)
}
# Families whose configurations are those of another one.
_SAME = {
    "Camembert": "Roberta",
    "New": "Gte",
    "Gemma3Text": "Gemma3",
    **dict.fromkeys(("MT5", "MT5Encoder"), "T5"),
    "UMT5Encoder": "UMT5",
    "PLBart": "MBart",
    **dict.fromkeys(("Pegasus", "Blenderbot"), "Bart"),
}


def _with_head(architecture: str) -> EncoderCase:
    """Returns a case of a family's head: the configuration of another case of the family."""
    family = re.sub("(For[A-Z].*|Model)$", "", architecture)
    family = _SAME.get(family, family)
    same = re.compile(f"{family}(For[A-Z].*|Model)")
    base = next(case for name, case in _ONE_EACH.items() if same.fullmatch(name) and "text_config" not in case.config)
    config = {**base.config, "architectures": [architecture], "pad_token_id": 0}
    config["id2label"] = {"0": "first", "1": "second"}
    return replace(ENCODER_CASES["qwen2_classifier"], config=config)


_ONE_EACH |= {name: _with_head(name) for name in architectures() if name not in _ONE_EACH}


def _lowered(points: tuple[EntryPoint, ...], streaming: bool, block_functions: bool) -> str:
    pieces: list[str] = []
    lower_module(points, pieces.append, ExternalParameters(), streaming=streaming, block_functions=block_functions)
    return "".join(pieces)


def _sample() -> list[str]:
    """Returns architectures: one of each structure of layers, and one of each file of the others."""
    structures = {case.config["architectures"][0] for case in BY_STRUCTURE.values()}
    others = {case.config["model_type"]: name for name, case in _ONE_EACH.items() if not isinstance(case, GoldenCase)}
    return [name for name in _ONE_EACH if name in structures or name in others.values()]


# Without functions for blocks every fourth; with TAPELINE_LONG=1 all.
_NAMES = list(_ONE_EACH) if LONG else _sample()
_FLAT = _NAMES[:: 1 if LONG else 4]


@pytest.mark.parametrize(
    ("case", "block_functions"),
    [
        *[pytest.param(_ONE_EACH[name], True, id=f"{name}-blocks") for name in _NAMES],
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
    assert len(_ALL) > len(_ONE_EACH) - 60  # most have a case of their own
