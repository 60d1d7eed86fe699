"""Rules that end generation."""

import doctest
from pathlib import Path

import pytest

from generation import StopRule, _stop, eos_ids, load_eos_ids
from lang_core import ConfigError


@pytest.mark.parametrize(
    ("config", "generation_config", "ids"),
    [
        ({}, None, set()),
        ({"eos_token_id": None}, {}, set()),
        ({"eos_token_id": 2}, None, {2}),
        ({"eos_token_id": [2, 7, 2]}, {}, {2, 7}),
        ({"eos_token_id": 2}, {"eos_token_id": None}, {2}),
        ({"eos_token_id": 2}, {"eos_token_id": [5, 9]}, {5, 9}),
        ({"text_config": {"eos_token_id": 3}}, None, {3}),
        ({"eos_token_id": 0, "text_config": {"eos_token_id": 3}}, None, {0}),
    ],
)
def test_eos_ids(config: dict[str, object], generation_config: dict[str, object] | None, ids: set[int]) -> None:
    assert eos_ids(config, generation_config) == ids


@pytest.mark.parametrize("value", ["2", True, -1, [1, None], 2.0])
def test_eos_ids_of_another_type(value: object) -> None:
    with pytest.raises(
        ConfigError, match=r"eos_token_id in generation_config\.json is .*: expected a token id, a list"
    ):
        eos_ids({"eos_token_id": 1}, {"eos_token_id": value})
    with pytest.raises(ConfigError, match=r"eos_token_id in config\.json is "):
        eos_ids({"eos_token_id": value})
    with pytest.raises(ConfigError, match=r"eos_token_id in config\.json \(text_config\) is "):
        eos_ids({"text_config": {"eos_token_id": value}})


def test_load_eos_ids(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"eos_token_id": 4}')
    assert load_eos_ids(tmp_path) == {4}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 6]}')
    assert load_eos_ids(tmp_path) == {4, 6}


def test_load_eos_ids_without_config(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*config\.json: No such file.*must be a model's or a bundle"):
        load_eos_ids(tmp_path)


@pytest.mark.parametrize("text", [b"{", b"\xff"])
def test_load_eos_ids_of_a_damaged_file(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "generation_config.json").write_bytes(text)
    with pytest.raises(ConfigError, match=r"generation_config\.json is not JSON \(.*\): copy it again"):
        load_eos_ids(tmp_path)


def test_load_eos_ids_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"config\.json holds a JSON list, expected an object"):
        load_eos_ids(tmp_path)


def test_stop_rule() -> None:
    rule = StopRule(frozenset({2}), max_new_tokens=3)
    assert rule.reason(5, count=1) is None
    assert rule.reason(2, count=1) == "eos"
    assert rule.reason(2, count=3) == "eos"
    assert rule.reason(5, count=3) == "length"
    assert rule.reason(5, count=4) == "length"


def test_stop_rule_ignoring_eos() -> None:
    rule = StopRule(frozenset({2}), max_new_tokens=3, ignore_eos=True)
    assert rule.reason(2, count=2) is None
    assert rule.reason(2, count=3) == "length"


def test_stop_rule_of_no_tokens() -> None:
    with pytest.raises(ConfigError, match="max_new_tokens=0 is out of range: give an integer of at least 1"):
        StopRule(frozenset(), max_new_tokens=0)


def test_doctests() -> None:
    assert doctest.testmod(_stop).failed == 0
