"""Room on the stack for functions that nest regions: branches in branches, loops in loops."""

import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from lang_core._errors import RecordingError

P = ParamSpec("P")
R = TypeVar("R")

# Frames of Python that nested regions may take: about ten for each, and the caller's own.
_FRAMES = 10_000
_LOCK = threading.Lock()


class _Running:
    """Calls that are running, and the limit before the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.before = 0


_RUNNING = _Running()


def nests_regions(function: Callable[P, R]) -> Callable[P, R]:
    """Gives a function, while it runs, room for regions that nest hundreds deep.

    A recursion that never ends becomes a RecordingError, for a region that is recorded calls the model's own functions.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        _enter()
        try:
            return function(*args, **kwargs)
        except RecursionError as error:
            raise RecordingError(
                f"{function.__name__}: functions call each other more than {_FRAMES} deep: the model's functions call "
                f"themselves, or regions nest, without an end; use ctx.ops.while_loop for repetitions"
            ) from error
        finally:
            _leave()

    return call


def _enter() -> None:
    with _LOCK:
        if _RUNNING.count == 0:
            _RUNNING.before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_RUNNING.before, _FRAMES))
        _RUNNING.count += 1


def _leave() -> None:
    """Restores the limit behind the last call, unless somebody has set another one."""
    with _LOCK:
        _RUNNING.count -= 1
        if _RUNNING.count == 0 and sys.getrecursionlimit() == max(_RUNNING.before, _FRAMES):
            sys.setrecursionlimit(_RUNNING.before)
