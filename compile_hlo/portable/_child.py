"""Calls in a child process: its memory is not ours, and if it dies we live."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import ParamSpec, TypeVar

from lang_core import VerificationError

P = ParamSpec("P")
T = TypeVar("T")


def in_child(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a module-level function in a fresh process and returns, or raises, what it does.

    Raises:
        VerificationError: the process died.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool:
            raise VerificationError(
                f"{function.__name__}{args}: the process that ran it died: see its messages above"
            ) from None
