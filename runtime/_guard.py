"""Guard of the files that a session has mapped."""

from contextlib import AbstractContextManager
from typing import Any, Protocol


class CallGuard(Protocol):
    """Watch over the files that a session has mapped; sessions ask it before each call."""

    def bind(self, lock: AbstractContextManager[Any]) -> None:
        """Takes the lock that the session holds during a call."""
        ...

    def holds_writers(self) -> bool:
        """Returns True if other processes that write the files wait for running calls."""
        ...

    def check(self) -> None:
        """Raises a TapelineError if a file is not, or is no longer, the one that was loaded; the lock is held."""
        ...

    def close(self) -> None:
        """Ends the watch; closing twice is allowed."""
        ...
