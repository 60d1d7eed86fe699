"""The settings of sampling, under the names of the command line's flags."""

import math
from dataclasses import dataclass

from lang_core import ConfigError


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How the next token is chosen. The defaults choose greedily.

    Attributes:
        temperature: logits are divided by it; 0 takes the most likely token.
        top_k: keep the k most likely tokens and those tied with the last of them; 0 is off.
        top_p: keep the most likely tokens until their probabilities sum to it; 1 is off.
        min_p: keep the tokens at least this many times as likely as the most likely one; 0 is off.
        repetition_penalty: tokens seen before have their logit divided by it where positive and multiplied by it
            where negative; 1 is off.
        seed: of the random bits; the same seed gives the same tokens.

    Raises:
        ConfigError: a value is of the wrong type or out of its range. The message names the flag.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _require_number("temperature", self.temperature)
        _require_number("top_p", self.top_p)
        _require_number("min_p", self.min_p)
        _require_number("repetition_penalty", self.repetition_penalty)
        _require("temperature", self.temperature, self.temperature >= 0, "at least 0 (0 is greedy)")
        _require("top_p", self.top_p, 0 <= self.top_p <= 1, "between 0 and 1 (1 is off)")
        _require("min_p", self.min_p, 0 <= self.min_p <= 1, "between 0 and 1 (0 is off)")
        _require("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0, "above 0 (1 is off)")
        _require_count("top_k", self.top_k, "an integer of at least 0 (0 is off)")
        _require_count("seed", self.seed, "an integer of at least 0")


def _require(flag: str, value: object, holds: bool, needed: str) -> None:
    if not holds:
        raise ConfigError(f"--{flag}={value!r} is out of range: give a value that is {needed}")


def _require_number(flag: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    _require(flag, value, number, "a finite number")


def _require_count(flag: str, value: object, needed: str) -> None:
    _require(flag, value, isinstance(value, int) and not isinstance(value, bool) and value >= 0, needed)
