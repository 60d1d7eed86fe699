"""RoPE frequencies: unscaled ones, and the scalings that stretch them beyond the trained length.

The formulas are those of transformers' ``modeling_rope_utils``, in f64. R is the number of rotated dims.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from lang_core import checked_choices

Array = np.ndarray[Any, Any]


def plain_frequencies(base: float, rotated: int) -> Array:
    """Computes ``base ** (-2 i / R)``, f64 [R/2] (Su et al. 2021, arXiv:2104.09864)."""
    return base ** (-np.arange(0, rotated, 2) / rotated)


class RopeScaling(ABC):
    """Scaling of frequencies. Subclasses are frozen, so that a config that holds one is hashable."""

    @property
    def attention_factor(self) -> float:
        """Factor of cos and sin."""
        return 1.0

    @property
    def threshold(self) -> int | None:
        """Length of a sequence up to which the frequencies do not depend on it; None if they never do."""
        return None

    @property
    def depends_on_length(self) -> bool:
        """True if the frequencies change with the length of the sequence."""
        return self.threshold is not None

    @abstractmethod
    def frequencies(self, base: float, rotated: int, length: int) -> Array:
        """Returns the angle per position of each pair, f64 [R/2], for a sequence of ``length`` positions."""

    @abstractmethod
    def reach(self, trained: int) -> int | None:
        """Returns the most positions for ``max_position_embeddings`` = trained; None without a limit."""


@dataclass(frozen=True, slots=True)
class NoScaling(RopeScaling):
    """Type ``default``."""

    def frequencies(self, base: float, rotated: int, length: int) -> Array:
        """Returns the unscaled frequencies."""
        return plain_frequencies(base, rotated)

    def reach(self, trained: int) -> int | None:
        """Returns the trained positions."""
        return trained


@dataclass(frozen=True, slots=True)
class LinearScaling(RopeScaling):
    """Type ``linear``: positions are divided by ``factor`` (Chen et al. 2023, arXiv:2306.15595)."""

    factor: float

    def frequencies(self, base: float, rotated: int, length: int) -> Array:
        """Returns the unscaled frequencies divided by the factor."""
        return plain_frequencies(base, rotated) / self.factor

    def reach(self, trained: int) -> int | None:
        """Returns the trained positions times the factor, as most files give the length before scaling."""
        return math.floor(trained * self.factor)


@dataclass(frozen=True, slots=True)
class ProportionalScaling(RopeScaling):
    """Type ``proportional`` (Gemma 4): the slow pairs of a head are not turned, the others as if all were.

    Attributes:
        share: share of the pairs that are turned.
        factor: divisor of the frequencies.
    """

    share: float
    factor: float = 1.0

    def frequencies(self, base: float, rotated: int, length: int) -> Array:
        """Returns the unscaled frequencies divided by the factor, and 0 for the pairs that are not turned."""
        turned = np.arange(rotated // 2) < int(self.share * rotated // 2)
        return np.where(turned, plain_frequencies(base, rotated) / self.factor, 0.0)

    def reach(self, trained: int) -> int | None:
        """Returns the trained positions times the factor."""
        return math.floor(trained * self.factor)


@dataclass(frozen=True, slots=True)
class DynamicScaling(RopeScaling):
    """Type ``dynamic`` (NTK): beyond the trained length the base grows with the length.

    With ``ratio = 1 + factor * (length - trained) / trained``, not below 1, transformers' base is
    ``base * ratio ** (R / (R - 2))``, and so frequency i is the plain one times ``ratio ** (-2 i / (R - 2))``.
    """

    factor: float
    trained: int

    @property
    def threshold(self) -> int | None:
        """The trained length."""
        return self.trained

    def exponents(self, rotated: int) -> Array:
        """Returns the exponents of the ratio, f64 [R/2]."""
        return -np.arange(0, rotated, 2) / max(rotated - 2, 1)

    def frequencies(self, base: float, rotated: int, length: int) -> Array:
        """Returns frequencies that fall with the length beyond the trained one."""
        ratio = 1.0 + self.factor * max(length - self.trained, 0) / self.trained
        return plain_frequencies(base, rotated) * ratio ** self.exponents(rotated)

    def reach(self, trained: int) -> int | None:
        """Returns None: unlimited."""
        return None


@dataclass(frozen=True, slots=True)
class Llama3Scaling(RopeScaling):
    """Type ``llama3``: long wavelengths are stretched, short ones are not, with a smooth band between them."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_length: int

    def frequencies(self, base: float, rotated: int, length: int) -> Array:
        """Interpolates by the number of turns that a frequency makes within the original length."""
        plain = plain_frequencies(base, rotated)
        turns = self.original_length * plain / (2 * math.pi)
        band = self.high_frequency_factor - self.low_frequency_factor
        smooth = np.clip((turns - self.low_frequency_factor) / band, 0.0, 1.0)
        return (1 - smooth) * plain / self.factor + smooth * plain

    def reach(self, trained: int) -> int | None:
        """Returns the stretched original length, or the trained one if that is more."""
        return max(trained, math.floor(self.factor * self.original_length))


@checked_choices
@dataclass(frozen=True, slots=True)
class YarnScaling(RopeScaling):
    """Type ``yarn`` (Peng et al. 2023, arXiv:2309.00071). ``factor_of_attention`` is the resolved attention factor."""

    factor: float
    original_length: int
    beta_fast: float
    beta_slow: float
    factor_of_attention: float
    truncate: bool

    @property
    def attention_factor(self) -> float:
        """The temperature of section 3.4."""
        return self.factor_of_attention

    def frequencies(self, base: float, rotated: int, length: int) -> Array:
        """Interpolates from unscaled frequencies to those divided by the factor, along a ramp over the dims."""

        def dim_of(turns: float) -> float:
            return rotated * math.log(self.original_length / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = dim_of(self.beta_fast), dim_of(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rotated - 1)
        if low == high:
            high += 0.001  # as in transformers: a step instead of a ramp
        ramp = np.clip((np.arange(rotated // 2) - low) / (high - low), 0.0, 1.0)
        plain = plain_frequencies(base, rotated)
        return plain / self.factor * ramp + plain * (1 - ramp)

    def reach(self, trained: int) -> int | None:
        """Returns the stretched original length, or the trained one if that is more."""
        return max(trained, math.floor(self.factor * self.original_length))


def yarn_attention_factor(factor: float, mscale: float, mscale_all_dim: float) -> float:
    """Computes ``0.1 ln(factor) + 1``, weighted by the two scales if both are given (not 0)."""
    if not mscale or not mscale_all_dim:
        return yarn_mscale(factor, 1.0)
    return yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim)


def yarn_mscale(factor: float, weight: float) -> float:
    """Computes ``0.1 weight ln(factor) + 1``; 1 if nothing is stretched."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


@dataclass(frozen=True, slots=True)
class LongropeScaling(RopeScaling):
    """Type ``longrope`` (Ding et al. 2024, arXiv:2402.13753): one divisor per frequency, in two sets."""

    short_factors: tuple[float, ...]
    long_factors: tuple[float, ...]
    original_length: int
    factor_of_attention: float

    @property
    def attention_factor(self) -> float:
        """Resolved attention factor, for every length."""
        return self.factor_of_attention

    @property
    def threshold(self) -> int | None:
        """The original length, above which the long factors hold; None if the two sets are the same."""
        return None if self.short_factors == self.long_factors else self.original_length

    def frequencies(self, base: float, rotated: int, length: int) -> Array:
        """Returns the unscaled frequencies divided by the factors for this length."""
        factors = self.long_factors if length > self.original_length else self.short_factors
        return plain_frequencies(base, rotated) / np.array(factors)

    def reach(self, trained: int) -> int | None:
        """Returns the trained positions."""
        return trained


def longrope_attention_factor(factor: float, original_length: int) -> float:
    """Computes ``sqrt(1 + ln(factor) / ln(original length))``, 1 if nothing is stretched."""
    return math.sqrt(1 + math.log(factor) / math.log(original_length)) if factor > 1 else 1.0
