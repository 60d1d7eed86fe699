"""Objects with methods that every rank calls, on its own object."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, Self

import numpy as np

from run_jax.processes._wire import Handle

TOLD: Final = frozenset(
    (
        "__call__",
        "__getitem__",
        "close",
        "copies",
        "function",
        "hold",
        "host_function",
        "number",
        "numpy",
        "read",
        "replace",
        "updating",
        "upload",
        "write",
        "zeros",
    )
)
"""Methods of a session, and of what it hands out, that every rank has to call: all that compute, move or read tensors.
"""

_DATA: Final = (str, int, float, np.ndarray, np.generic, type(None))


class Caller(Protocol):
    """Rank 0, which tells the others of calls."""

    def call(self, target: "Mirrored", method: str, values: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Calls a method on every rank."""
        ...

    def forget(self, number: int) -> None:
        """Lets the other ranks drop an object, some time."""
        ...


class Mirrored:
    """An object of rank 0 that every rank has: calls of methods in ``TOLD`` are calls on each.

    All else is that of rank 0's own object.
    """

    __slots__ = ("__weakref__", "_caller", "own_object", "shared_number")

    def __init__(self, caller: Caller, target: Any, number: int) -> None:
        """Takes an object.

        Args:
            caller: rank 0.
            target: rank 0's own object.
            number: its number on every rank.
        """
        self._caller: Final = caller
        self.own_object: Final = target
        self.shared_number: Final = number

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.own_object, name)
        return self._told(name) if name in TOLD else value

    def __call__(self, *values: Any, **keywords: Any) -> Any:
        return self._caller.call(self, "__call__", values, keywords)

    def __getitem__(self, index: int) -> Any:
        return self._caller.call(self, "__getitem__", (index,), {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._caller.forget(self.shared_number)

    def __repr__(self) -> str:
        return f"Mirrored({self.own_object!r})"

    def _told(self, name: str) -> Callable[..., Any]:
        return lambda *values, **keywords: self._caller.call(self, name, values, keywords)


def own(value: Any) -> Any:
    """Returns a value with rank 0's own objects in the place of mirrored ones."""
    return _mapped(value, lambda item: item.own_object)


def handles(value: Any) -> Any:
    """Returns a value with numbers in the place of mirrored objects, to be sent."""
    return _mapped(value, lambda item: Handle(item.shared_number))


def _mapped(value: Any, of: Callable[[Mirrored], Any]) -> Any:
    if isinstance(value, Mirrored):
        return of(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, of) for key, item in value.items()}
    if type(value) in (list, tuple):  # a TensorSpec is a tuple, too
        return type(value)(_mapped(item, of) for item in value)
    return value


def numbered(value: Any, first: int, made: Callable[[Any, int], Any]) -> tuple[Any, int]:
    """Returns the result of a call with its objects numbered, in one order on every rank, and the next free number.

    Args:
        value: data, an object, or a list or tuple of such.
        first: first free number.
        made: receives an object and its number and returns the replacement.
    """
    if isinstance(value, _DATA):
        return value, first
    if type(value) in (list, tuple):
        items: list[Any] = []
        for item in value:
            result, first = numbered(item, first, made)
            items.append(result)
        return type(value)(items), first
    return made(value, first), first + 1


class Outcomes:
    """Calls of which other ranks have said that they failed, held against rank 0's own."""

    def __init__(self) -> None:
        self._condition: Final = threading.Condition()
        self._done: Final[dict[int, bool]] = {}
        self._last = 0

    def done(self, call: int, *, failed: bool) -> None:
        """Notes that rank 0's own call has ended."""
        with self._condition:
            self._last = call
            self._done.pop(call - 64, None)
            if failed:
                self._done[call] = True
            self._condition.notify_all()

    def failed_here(self, call: int, seconds: float) -> bool:
        """Returns whether rank 0's own call failed as well; False if it does not end in time."""
        with self._condition:
            self._condition.wait_for(lambda: self._last >= call, seconds)
            return self._done.get(call, False)
