"""Greedy generation asks for the likeliest token alone."""

import doctest
from dataclasses import dataclass, field

import numpy as np
import pytest

from generation import KnownLogits, Sampler, SamplingConfig, _prediction, likeliest_ids, rows_of
from lang_core import VerificationError

_LOGITS = np.array([3.0, 9.0, -2.0, 9.0], np.float32)


@dataclass
class _Told:
    """Says one token, whatever its logits are, and notes what it is asked for."""

    array: np.ndarray
    token_id: int
    asked: list[str] = field(default_factory=list)

    def logits(self) -> np.ndarray:
        self.asked.append("logits")
        return self.array

    def likeliest(self) -> int:
        self.asked.append("likeliest")
        return self.token_id


@pytest.mark.parametrize("config", [SamplingConfig(), SamplingConfig(top_k=2, top_p=0.1, min_p=0.5, seed=7)])
def test_a_greedy_choice_reads_no_logits(config: SamplingConfig) -> None:
    told = _Told(_LOGITS, 2)
    assert Sampler(config, 4).choose(told, [0]) == 2
    assert told.asked == ["likeliest"]


@pytest.mark.parametrize("config", [SamplingConfig(temperature=0.7, seed=3), SamplingConfig(repetition_penalty=9.5)])
def test_other_choices_go_by_the_logits(config: SamplingConfig) -> None:
    told = _Told(_LOGITS, 2)
    assert Sampler(config, 4).choose(told, [1]) == Sampler(config, 4)(_LOGITS, [1]) != 2
    assert told.asked == ["logits"]


def test_logits_without_a_likeliest_one_are_named() -> None:
    told = _Told(np.array([1, np.nan, 2, 3], np.float32), -1)
    with pytest.raises(VerificationError, match=r"1 of 4 logits are not finite, the first is nan for token 1"):
        Sampler(SamplingConfig(), 4).choose(told, [])
    assert told.asked == ["likeliest", "logits"]


def test_an_id_beyond_the_vocabulary_is_no_choice() -> None:
    told = _Told(np.zeros(9, np.float32), 7)
    with pytest.raises(
        VerificationError, match=r"logits to choose a token from are float32\[9\], expected float32\[4\]"
    ):
        Sampler(SamplingConfig(), 4).choose(told, [])


def test_known_logits() -> None:
    assert KnownLogits(_LOGITS).likeliest() == 1
    rows = np.array([[1, 2, 3], [np.inf, 2, 3], [7, 7, 3]], np.float32)
    assert likeliest_ids(rows).tolist() == [prediction.likeliest() for prediction in rows_of(rows)] == [2, -1, 0]


def test_doctests() -> None:
    assert doctest.testmod(_prediction).failed == 0
