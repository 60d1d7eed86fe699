"""Default sampling: fields of generation_config.json one by one, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation import (
    DEFAULT_SAMPLING,
    SamplingConfig,
    default_sampling,
    load_default_sampling,
)
from lang_core import ConfigError

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, 100),
    "top_k": st.integers(0, 100),
    "top_p": st.floats(0, 1),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(0.1, 3),
}


def test_a_model_that_recommends_nothing_has_the_defaults_of_llama_cpp() -> None:
    expected = SamplingConfig(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
    assert default_sampling({}) == DEFAULT_SAMPLING == expected
    assert default_sampling({"bos_token_id": 1, "eos_token_id": [2, 3], "_from_model_config": True}) == expected


@given(st.fixed_dictionaries({}, optional={name: values | st.none() for name, values in _FIELDS.items()}))
def test_each_field_counts_by_itself(config: dict[str, Any]) -> None:
    values = {name: value for name, value in config.items() if value is not None}
    for samples in ({}, {"do_sample": True}, {"do_sample": None}):
        assert default_sampling({**config, **samples}) == replace(DEFAULT_SAMPLING, **values)
    assert default_sampling({**config, "do_sample": False}) == replace(
        DEFAULT_SAMPLING, **{**values, "temperature": 0.0}
    )


def test_greedy_recommendations_are_greedy() -> None:
    for config in ({"do_sample": False, "temperature": 0.7, "top_p": 0.9}, {"temperature": 0}, {"temperature": 0.0}):
        assert default_sampling(config).temperature == 0


def test_all_tokens_may_be_written_as_minus_one() -> None:
    assert default_sampling({"top_k": -1}).top_k == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"temperature": -1}, r"temperature=-1 is out of range"),
        ({"temperature": "hot"}, r"temperature='hot' is out of range: give a value that is a finite number"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"top_k": 1.5}, r"top_k=1\.5"),
        ({"top_k": -2}, "top_k=-2"),
        ({"top_p": 1.1}, r"top_p=1\.1"),
        ({"min_p": [1]}, r"min_p=\[1\]"),
        ({"repetition_penalty": 0}, "repetition_penalty=0"),
        ({"do_sample": "yes"}, "do_sample='yes': expected true, false or null"),
    ],
)
def test_wrong_values_are_refused_with_the_file(config: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        default_sampling(config)
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    name, _, problem = message.partition("=")
    with pytest.raises(ConfigError, match=rf"generation_config\.json: field '{name}': {problem}"):
        load_default_sampling(tmp_path)


def test_the_file_of_a_directory(tmp_path: Path) -> None:
    assert load_default_sampling(tmp_path) == DEFAULT_SAMPLING
    path = tmp_path / "generation_config.json"
    path.write_text('{"top_k": 20, "do_sample": true}')
    assert load_default_sampling(tmp_path) == replace(DEFAULT_SAMPLING, top_k=20)
    for text in ("", "[1]", "{", '"a"'):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"generation_config\.json"):
            load_default_sampling(tmp_path)
