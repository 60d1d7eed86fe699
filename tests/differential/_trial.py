"""A trial: one call of an op or composite, and what jax says that it gives."""

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lang_core import TensorSpec, as_dtype

Array = np.ndarray[Any, Any]
Draw = Callable[..., Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One drawn call, with the truth about it.

    Attributes:
        name: of the op or composite.
        what: the attributes, for messages.
        call: takes a context and one tensor per input, returns a tensor or several.
        inputs: their data.
        reference: the same in ``jax.numpy`` or ``jax.lax``; takes ``given``.
        dtypes: names of the results' dtypes.
        given: what the reference takes; None for the inputs. Floats of up to 32 bits reach it as f64, so that it
            says what the exact result is, but for ``exact`` trials.
        exact: nothing is computed: the reference keeps dtypes, and every bit counts.
        ulps: how far a floating result may be from the truth, in units in the last place; 0: it is the truth,
            rounded once.
        magnitude: the size of what is summed, in the reference's terms: an error relative to it is allowed too.
        either_zero: which of 0.0 and -0.0 comes out is open.
        named: the call makes placeholders ``x0``, ``x1``, ... itself and takes no tensors.
        open_on_devices: why devices may differ; empty if they may not.
    """

    name: str
    what: str
    call: Callable[..., Any]
    inputs: tuple[Array, ...]
    reference: Callable[..., Any]
    dtypes: tuple[str, ...]
    given: tuple[Array, ...] | None = None
    exact: bool = False
    ulps: float = 0.0
    magnitude: Callable[..., Any] | None = None
    either_zero: bool = False
    named: bool = False
    open_on_devices: str = ""

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Returns the specs of the tensors that ``call`` takes."""
        return () if self.named else tuple(TensorSpec(x.shape, as_dtype(x.dtype)) for x in self.inputs)

    def __str__(self) -> str:
        operands = ", ".join(f"{as_dtype(x.dtype)}{list(x.shape)}" for x in self.inputs)
        return f"{self.name}({operands}{'; ' if self.what else ''}{self.what})"


class Serial:
    """Numbers the generators of one op's trials, for hypothesis likes to draw the seed 0."""

    number = 0


Strategy = st.SearchStrategy[Trial]
STRATEGIES: Final[dict[str, Strategy]] = {}


def trials(*names: str) -> Callable[[Callable[[Draw, str], Trial]], Callable[[Draw, str], Trial]]:
    """Registers how trials of ops or composites are drawn: ``function(draw, name)``."""

    def register(function: Callable[[Draw, str], Trial]) -> Callable[[Draw, str], Trial]:
        for name in names:
            if name in STRATEGIES:
                raise KeyError(f"{name!r} has a strategy already")
            STRATEGIES[name] = st.composite(function)(name)
        return function

    return register


def drawn(name: str, count: int) -> list[Trial]:
    """Up to ``count`` trials that differ in dtypes, shapes or attributes; the same ones on every call.

    Few examples of hypothesis are alike, small or empty; so more are drawn, and the empty ones come last.
    """
    trials_by_text: dict[str, Trial] = {}

    @settings(
        max_examples=4 * count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(STRATEGIES[name])
    def collect(trial: Trial) -> None:
        trials_by_text.setdefault(str(trial), trial)

    Serial.number = 0
    collect()
    empty = [trial for trial in trials_by_text.values() if not all(x.size for x in trial.inputs)]
    full = [trial for trial in trials_by_text.values() if all(x.size for x in trial.inputs)]
    few = min(len(empty), count // 6)
    return full[: count - few] + empty[:few]
