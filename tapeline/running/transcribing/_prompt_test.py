import json
from pathlib import Path
from typing import Any

import pytest

from lang_core import ChoiceError, ConfigError, InputError
from tapeline.running.transcribing import SpeechConfig, prompt_tokens

_VOCABULARY = 30
_START, _EN, _DE, _TRANSLATE, _TRANSCRIBE, _SILENT = 10, 11, 12, 13, 14, 19
_FIELDS = {
    "decoder_start_token_id": _START,
    "eos_token_id": 9,
    "lang_to_id": {"<|en|>": _EN, "<|de|>": _DE},
    "no_timestamps_token_id": _SILENT,
    "task_to_id": {"transcribe": _TRANSCRIBE, "translate": _TRANSLATE},
}
_ENGLISH = {"decoder_start_token_id": _START, "eos_token_id": 9, "no_timestamps_token_id": _SILENT}


def _config(directory: Path, fields: Any, base: Any = None) -> SpeechConfig:
    (directory / "config.json").write_text(json.dumps(base or {}))
    (directory / "generation_config.json").write_text(json.dumps(fields))
    return SpeechConfig.load(directory, _VOCABULARY)


def _never() -> int:
    raise AssertionError("the language was detected")


@pytest.mark.parametrize("language", ["de", "German", "<|de|>", " DE "])
def test_a_language_is_given_by_code_name_or_token(language: str, tmp_path: Path) -> None:
    tokens = prompt_tokens(_config(tmp_path, _FIELDS), language, "translate", False, _never)
    assert tokens == [_START, _DE, _TRANSLATE, _SILENT]


def test_a_language_is_detected_where_none_is_given(tmp_path: Path) -> None:
    config = _config(tmp_path, _FIELDS)
    assert prompt_tokens(config, None, "transcribe", True, lambda: _DE) == [_START, _DE, _TRANSCRIBE]
    fixed = _config(tmp_path, {**_FIELDS, "language": "<|en|>"})
    assert prompt_tokens(fixed, None, "transcribe", True, _never) == [_START, _EN, _TRANSCRIBE]


def test_forced_tokens_of_older_files(tmp_path: Path) -> None:
    """A null is the place of the language; tasks that are known come before what is forced."""
    told = _config(tmp_path, {**_FIELDS, "forced_decoder_ids": [[1, None], [2, _TRANSLATE]]})
    assert prompt_tokens(told, None, "transcribe", False, lambda: _EN) == [_START, _EN, _TRANSCRIBE, _SILENT]
    untold = {name: value for name, value in _FIELDS.items() if name != "task_to_id"}
    config = _config(tmp_path, {**untold, "forced_decoder_ids": [[1, None], [2, _TRANSCRIBE]]})
    assert prompt_tokens(config, None, "transcribe", False, lambda: _EN) == [_START, _EN, _TRANSCRIBE, _SILENT]
    assert prompt_tokens(config, "de", "transcribe", True, _never) == [_START, _DE]


@pytest.mark.parametrize("fields", [_ENGLISH, {**_ENGLISH, "forced_decoder_ids": [[1, _SILENT]]}])
def test_a_model_for_english_has_no_language_and_no_task(fields: dict[str, Any], tmp_path: Path) -> None:
    config = _config(tmp_path, {**fields, "is_multilingual": False})
    assert prompt_tokens(config, None, "transcribe", False, _never) == [_START, _SILENT]
    assert prompt_tokens(config, None, "transcribe", True, _never) == [_START]
    with pytest.raises(InputError, match=r"language='en': .*names no languages \(lang_to_id\).* leave `language` out"):
        prompt_tokens(config, "en", "transcribe", False, _never)
    with pytest.raises(InputError, match="task='translate': not found; available: transcribe"):
        prompt_tokens(config, None, "translate", False, _never)


def test_what_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    config = _config(tmp_path, {**_FIELDS, "task_to_id": {"transcribe": _TRANSCRIBE}})
    with pytest.raises(InputError, match="language='french': not found; available: de, en"):
        prompt_tokens(config, "french", "transcribe", False, _never)
    with pytest.raises(InputError, match="language='germn': not found; available: de, en; did you mean 'german'"):
        prompt_tokens(config, "germn", "transcribe", False, _never)
    with pytest.raises(InputError, match="task='translate': not found; available: transcribe"):
        prompt_tokens(config, "de", "translate", False, _never)
    with pytest.raises(ChoiceError, match="task: expected one of transcribe, translate; found 'sing'"):
        prompt_tokens(config, "de", "sing", False, _never)  # type: ignore[arg-type]


def test_config_json_is_read_where_the_other_is_silent(tmp_path: Path) -> None:
    base = {"suppress_tokens": [1], "begin_suppress_tokens": [2], "eos_token_id": 3, "max_length": 7}
    fields = {**_FIELDS, "suppress_tokens": [4], "eos_token_id": [9], "max_initial_timestamp_index": 5}
    config = _config(tmp_path, fields, base)
    assert (config.suppressed, config.first_suppressed, config.eos) == ((4,), (2,), 9)
    assert (config.max_length, config.latest_first, config.first_timestamp) == (7, 5, _SILENT + 1)
    silent = _config(tmp_path, {"decoder_start_token_id": 1, "eos_token_id": 2})
    assert (silent.no_timestamps, silent.first_timestamp, silent.languages) == (None, _VOCABULARY, {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"decoder_start_token_id": None},
            "field 'decoder_start_token_id': expected a token, each below .* found None",
        ),
        ({"eos_token_id": [1, 2]}, r"field 'eos_token_id': expected a token.*found \[1, 2\]"),
        (
            {"eos_token_id": 30},
            r"field 'eos_token_id': expected a token, each below the vocabulary's size \(30\); found 30",
        ),
        ({"no_timestamps_token_id": True}, "field 'no_timestamps_token_id': expected a token"),
        ({"suppress_tokens": [1, -1]}, "field 'suppress_tokens': expected a list of tokens"),
        ({"begin_suppress_tokens": {"a": 1}}, "field 'begin_suppress_tokens': expected a list of tokens"),
        ({"lang_to_id": {"<|en|>": 99}}, "field 'lang_to_id': expected an object of tokens"),
        ({"task_to_id": [1]}, "field 'task_to_id': expected an object of tokens"),
        ({"forced_decoder_ids": [[2, 1]]}, "field 'forced_decoder_ids': expected pairs of a position, counted from 1"),
        ({"forced_decoder_ids": [[1, 99]]}, "field 'forced_decoder_ids': expected pairs"),
        ({"forced_decoder_ids": 3}, "field 'forced_decoder_ids': expected pairs"),
        ({"language": 3}, "field 'language': expected a text; found 3"),
        ({"is_multilingual": "yes"}, "field 'is_multilingual': expected true or false"),
        ({"max_initial_timestamp_index": -1}, "field 'max_initial_timestamp_index': expected an integer of at least 0"),
    ],
)
def test_bad_settings_are_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"generation_config\.json: {message}"):
        _config(tmp_path, {**_FIELDS, **fields})


def test_settings_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        ConfigError, match=r"generation_config\.json: no such file: it says which tokens begin a transc"
    ):
        SpeechConfig.load(tmp_path, _VOCABULARY)
