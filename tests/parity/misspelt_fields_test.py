"""Misspelt optional fields of config.json: each is named with the field that it stands for, and nothing else is."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lang_core import ConfigError
from tests.goldens.cases import CASES
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.samples import LONG
from transformer_core.models import misspelt_fields

_CONFIGS: Mapping[str, Any] = {name: case.config for name, case in [*CASES.items(), *ENCODER_CASES.items()]}


def _warnings(folder: Path, config: Mapping[str, Any]) -> list[str]:
    (folder / "config.json").write_text(json.dumps(config))
    return misspelt_fields(folder, weights=False)


def _typo(name: str, rng: random.Random) -> str:
    """Leaves out, doubles or swaps a letter."""
    at = rng.randrange(1, len(name) - 1)
    first, letter, second = name[:at], name[at], name[at + 1 :]
    return rng.choice([first + second, first + 2 * letter + second, first + second[0] + letter + second[1:]])


@pytest.mark.parametrize("name", _CONFIGS)
def test_fields_of_transformers_are_no_mistakes(name: str, tmp_path: Path) -> None:
    assert _warnings(tmp_path, _CONFIGS[name]) == []


# The first case of each architecture; with TAPELINE_LONG=1 in the environment all.
_FIRST = {case.config["architectures"][0]: name for name, case in reversed(CASES.items())}


@pytest.mark.parametrize("name", CASES if LONG else sorted(_FIRST.values()))
def test_a_misspelt_optional_field_is_named(name: str, tmp_path: Path) -> None:
    config, rng, refused, warned = CASES[name].config, random.Random(name), 0, 0
    fields = [
        field for field, value in config.items() if len(field) > 5 and value is not None and not field.startswith("_")
    ]
    for field in fields:
        typo = _typo(field, rng)
        if typo in config:
            continue
        changed = {typo if key == field else key: value for key, value in config.items()}
        try:
            warnings = _warnings(tmp_path, changed)
        except ConfigError:  # a field that is needed
            refused += 1
            continue
        # A field that is not read has no warning, whatever its name.
        assert len(warnings) <= 1
        if warnings:
            assert f"field {typo!r} is not read, and field {field!r}" in warnings[0], warnings
            warned += 1
    assert warned > 2
    assert refused > 0
