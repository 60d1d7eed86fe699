"""Errors of the engine."""

from typing import Final

from lang_core import InputError, TapelineError


class BusyError(TapelineError):
    """The queue is full.

    Attributes:
        retry_after: seconds after which it is worth to ask again.
    """

    def __init__(self, waiting: int, retry_after: float) -> None:
        """Makes the message.

        Args:
            waiting: requests in the queue.
            retry_after: seconds.
        """
        super().__init__(
            f"{waiting} requests wait already, and no more are taken: ask again in {retry_after:.0f} s, or raise "
            "max_waiting of the engine's settings"
        )
        self.retry_after: Final = retry_after


class EngineClosedError(TapelineError):
    """The engine was closed before or during the request."""


class ModelFailedError(TapelineError):
    """A call of the model raised. All answers that were running have ended with this."""


class ConstraintError(InputError):
    """A request's constraint failed, or forbade all tokens."""
