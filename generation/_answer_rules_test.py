import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generation import AnswerRules, AnswerScores
from lang_core import ConfigError


def _read(directory: Path, config: dict[str, Any], generation: dict[str, Any] | None = None) -> AnswerRules:
    (directory / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (directory / "generation_config.json").write_text(json.dumps(generation))
    return AnswerRules.read(directory)


def test_rules_of_config_json_have_the_defaults_of_the_type(tmp_path: Path) -> None:
    rules = _read(tmp_path, {"model_type": "bart", "num_beams": 4, "decoder_start_token_id": 7})
    assert (rules.start, rules.ends, rules.forced_last, rules.beams) == (7, (2,), (2,), 4)
    assert _read(tmp_path, {"model_type": "bart", "forced_eos_token_id": None}).forced_last == ()
    assert _read(tmp_path, {"model_type": "blenderbot"}).source_ngram == 3


def test_generation_config_json_counts_alone(tmp_path: Path) -> None:
    generation = {"bos_token_id": 3, "eos_token_id": [5, 6], "min_new_tokens": 4, "early_stopping": "never"}
    rules = _read(tmp_path, {"model_type": "bart", "num_beams": 4}, generation)
    assert (rules.start, rules.ends, rules.forced_last, rules.beams) == (3, (5, 6), (), 1)
    assert (rules.min_length, rules.early_stopping, rules.max_length) == (5, "never", None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_beam_groups": 2}, "field 'num_beam_groups': expected no such field: this setting is not supported"),
        ({"sequence_bias": [[[3], 1.0]]}, "field 'sequence_bias'"),
        ({"decoder_start_token_id": "a"}, "field 'decoder_start_token_id': expected a token id"),
        ({"forced_bos_token_id": [1, 2]}, "field 'forced_bos_token_id': expected one token id"),
        ({"bad_words_ids": [3]}, "field 'bad_words_ids': expected a list of lists of token ids"),
        ({"num_beams": 0}, "num_beams=0: expected an integer of 1 to 64"),
        ({"early_stopping": "soon"}, "field 'early_stopping': expected true, false or 'never'; found 'soon'"),
        ({"length_penalty": "long"}, "field 'length_penalty': expected a finite number"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        _read(tmp_path, {"model_type": "t5"}, {"decoder_start_token_id": 0, **fields})


def _allowed(rules: AnswerRules, tokens: list[int], source: tuple[int, ...] = (), limit: int = 9) -> list[int]:
    scores = AnswerScores(rules, source, limit)(np.zeros(8, np.float32), tokens)
    return np.flatnonzero(np.isfinite(scores)).tolist()


def test_rules_forbid_and_force_tokens() -> None:
    everything = list(range(8))
    assert _allowed(AnswerRules(start=0, ends=(1,)), [0]) == everything
    assert _allowed(AnswerRules(start=0, ends=(1, 4), min_length=3), [0, 5]) == [0, 2, 3, 5, 6, 7]
    assert _allowed(AnswerRules(start=0, ends=(1,), forced_first=6), [0]) == [6]
    assert _allowed(AnswerRules(start=0, ends=(1,), forced_last=(1, 3)), [0] * 8) == [1, 3]
    assert _allowed(AnswerRules(start=0, ends=(1,), ngram=2), [0, 5, 6, 5]) == [0, 1, 2, 3, 4, 5, 7]
    assert _allowed(AnswerRules(start=0, ends=(1,), source_ngram=2), [0, 5], (5, 2, 5, 3)) == [0, 1, 4, 5, 6, 7]
    words = AnswerRules(start=0, ends=(1,), bad_words=((7,), (5, 6)))
    assert (_allowed(words, [0]), _allowed(words, [0, 5])) == ([*range(7)], [*range(6)])
    begins = AnswerRules(start=0, ends=(1,), suppressed=(2,), first_suppressed=(3,))
    assert (_allowed(begins, [0]), _allowed(begins, [0, 5])) == ([0, 1, 4, 5, 6, 7], [0, 1, 3, 4, 5, 6, 7])
