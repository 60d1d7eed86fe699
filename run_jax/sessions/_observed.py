"""Receivers of the arguments, traces and results of calls."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from compile_hlo.directions import Signature

Array = np.ndarray[Any, Any]


class Observation(Protocol):
    """Receiver of one call, which was told the arguments."""

    def traced(self, key: str, arrays: Sequence[Array]) -> None:
        """Takes the tensors of a trace; one in a loop comes once a round."""
        ...

    def returned(self, arrays: Sequence[Array]) -> None:
        """Takes the results, after all traces. May raise TapelineError, which ends the call."""
        ...


class Observer(Protocol):
    """Receiver of all calls of a session."""

    def called(self, signature: Signature, arrays: Sequence[Array]) -> Observation:
        """Takes the arguments of a call, before it. May raise TapelineError, which ends the call."""
        ...

    def close(self) -> None:
        """Releases its resources for calls."""
        ...
