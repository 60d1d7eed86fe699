"""Verification of a model's bundle that runs while the model answers."""

import threading
from collections.abc import Callable
from typing import Final, Literal

from lang_core import ProcessError, TapelineError

VerificationState = Literal["running", "passed", "failed"]


class Verification:
    """State of the verification of one model's bundle. Any thread may call it.

    Until ``begin`` there is none: the bundle was verified before the model was loaded.

    >>> verification = Verification()
    >>> verification.begin()
    >>> verification.end(None)
    >>> verification.state
    'passed'
    """

    def __init__(self) -> None:
        """Begins without a verification."""
        self._lock: Final = threading.Lock()
        self._state: VerificationState | None = None
        self._error: TapelineError | None = None
        self._on_end: Callable[[], object] = lambda: None

    @property
    def state(self) -> VerificationState | None:
        """State of the latest verification; None if there was none."""
        return self._state

    @property
    def error(self) -> TapelineError | None:
        """Error of the latest verification, if it has failed."""
        return self._error

    def on_end(self, call: Callable[[], object]) -> None:
        """Sets the function to call at the end of a verification, in the thread that ends it."""
        self._on_end = call

    def begin(self) -> None:
        """Begins a verification."""
        with self._lock:
            self._state, self._error = "running", None

    def end(self, error: BaseException | None) -> None:
        """Ends the verification: with an error, or with None if the bundle is verified."""
        with self._lock:
            self._state = "passed" if error is None else "failed"
            if error is not None and not isinstance(error, TapelineError):
                error = ProcessError(f"the verification ended with {type(error).__name__}: {error}")
            self._error = error
        self._on_end()
