"""Trials: runs of candidates without side effects, and callbacks that may fail without consequences."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from autotune.kernel._errors import CallbackWarning
from lang_core import ExecutionContext

_TRIAL: Final[ContextVar[bool]] = ContextVar("tapeline_kernel_trial", default=False)


def is_trial() -> bool:
    """Returns whether a candidate is checked or timed now: its calls are not recorded, profiled or reported."""
    return _TRIAL.get()


@contextmanager
def trial(values: Iterable[Any]) -> Iterator[None]:
    """Suppresses the side effects of calls within a ``with`` block.

    Tags of the contexts among the values, records, profiles, events.
    """
    with ExitStack() as stack:
        for ctx in {id(value): value for value in values if isinstance(value, ExecutionContext)}.values():
            stack.enter_context(ctx.untagged())
        token = _TRIAL.set(True)
        try:
            yield
        finally:
            _TRIAL.reset(token)


class Observer:
    """Callback that may fail: the first exception is reported as a ``CallbackWarning``, later ones are dropped.

    Args:
        callback: function to call; nothing is called if None.
        name: name of the argument that gave the callback.
    """

    def __init__(self, callback: Callable[..., object] | None, name: str) -> None:
        self.callback, self._name, self._reported = callback, name, False

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self.callback is None:
            return
        try:
            self.callback(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - a callback of the user's may fail in any way
            if not self._reported:
                self._reported = True
                message = f"{self._name} raised {type(error).__name__}: {error}: the call goes on, and further failures"
                warnings.warn(f"{message} of it are not reported", CallbackWarning, stacklevel=3)
