"""Settings of sampling, named as the command line's flags."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

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
        presence_penalty: number that is subtracted from the logits of tokens generated before; 0 is off.
        frequency_penalty: the same, times how often the token was generated; 0 is off.
        logit_bias: numbers that are added to the logits of tokens, by id.

    Raises:
        ConfigError: a value is of the wrong type or out of its range. The message names the setting.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float], hash=False)

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
        _require_number("presence_penalty", self.presence_penalty)
        _require_number("frequency_penalty", self.frequency_penalty)
        if not isinstance(self.logit_bias, Mapping):
            raise ConfigError(f"logit_bias={self.logit_bias!r:.80}: expected numbers by token id, such as {{5: -1.0}}")
        for token_id, bias in self.logit_bias.items():
            _require_count("a token of logit_bias", token_id, "an integer of at least 0")
            _require_number(f"logit_bias[{token_id}]", bias)


def _require(name: str, value: object, holds: bool, needed: str) -> None:
    if not holds:
        raise ConfigError(f"{name}={value!r} is out of range: give a value that is {needed}")


def _require_number(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    _require(name, value, number, "a finite number")


def _require_count(name: str, value: object, needed: str) -> None:
    _require(name, value, isinstance(value, int) and not isinstance(value, bool) and value >= 0, needed)
