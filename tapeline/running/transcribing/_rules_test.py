import json
from pathlib import Path

import numpy as np
import pytest

from lang_core import InputError, VerificationError
from tapeline.running.transcribing import SpeechConfig, TokenRules

_FIELDS = {"decoder_start_token_id": 0, "eos_token_id": 1}


def _config(directory: Path, **fields: object) -> SpeechConfig:
    (directory / "config.json").write_text("{}")
    (directory / "generation_config.json").write_text(json.dumps({**_FIELDS, **fields}))
    return SpeechConfig.load(directory, 5)


def test_suppressed_tokens_do_not_come(tmp_path: Path) -> None:
    rules = TokenRules(_config(tmp_path, suppress_tokens=[4], begin_suppress_tokens=[3]), 5, timestamps=False)
    logits = np.arange(5, dtype=np.float32)
    assert (rules.choose(logits, []), rules.choose(logits, [2])) == (2, 3)
    assert logits.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_refused(value: float, tmp_path: Path) -> None:
    rules = TokenRules(_config(tmp_path), 5, timestamps=False)
    with pytest.raises(VerificationError, match="logits of a transcription are NaN or infinite"):
        rules.choose(np.array([0, 1, 2, value, 4], np.float32), [])


def test_a_token_must_be_left(tmp_path: Path) -> None:
    rules = TokenRules(_config(tmp_path, suppress_tokens=[0, 1, 2, 3, 4]), 5, timestamps=False)
    with pytest.raises(VerificationError, match="every token that may come next is suppressed"):
        rules.choose(np.zeros(5, np.float32), [])


@pytest.mark.parametrize("fields", [{}, {"no_timestamps_token_id": 4}])
def test_timestamps_need_tokens(fields: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no token is a timestamp .* give shorter sound and timestamps=False"):
        TokenRules(_config(tmp_path, **fields), 5, timestamps=True)
