"""Settings of sampling, named as the command line's flags."""

import math
from dataclasses import dataclass

from lang_core import ConfigError


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Settings of how the next token is chosen. The defaults choose greedily.

    Attributes:
        temperature: divisor of the logits; 0 takes the most likely token.
        top_k: number of most likely tokens to keep, with those tied with the last of them; 0 is off.
        top_p: probability that the kept, most likely tokens must sum to; 1 is off.
        min_p: least probability of a kept token, relative to the most likely one; 0 is off.
        repetition_penalty: divisor of positive and factor of negative logits of tokens seen before; 1 is off.
        seed: random seed; the same seed gives the same tokens.

    Raises:
        ConfigError: a value is of the wrong type or out of its range. The message names the setting.
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


def _require(name: str, value: object, holds: bool, needed: str) -> None:
    if not holds:
        raise ConfigError(f"{name}={value!r} is out of range: give a value that is {needed}")


def _require_number(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    _require(name, value, number, "a finite number")


def _require_count(name: str, value: object, needed: str) -> None:
    _require(name, value, isinstance(value, int) and not isinstance(value, bool) and value >= 0, needed)
