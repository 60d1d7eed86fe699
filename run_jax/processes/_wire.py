"""Values of calls as messages: JSON, and arrays as they lie in memory."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lang_core import (
    LARGE_JSON_BOUNDS,
    InputError,
    ProcessError,
    TapelineError,
    TensorSpec,
    as_dtype,
    json_value,
)

_PLAIN: Final = (str, int, float, type(None))  # bool is an int


class Handle:
    """Number of an object that every rank has.

    Attributes:
        number: its number.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number: Final = number


class Written:
    """Message, ready to be sent.

    Attributes:
        text: JSON.
        arrays: the arrays that it names, contiguous.
    """

    __slots__ = ("arrays", "text")

    def __init__(self, value: Any) -> None:
        """Writes a value.

        Raises:
            InputError: it has a value that other processes cannot use, such as a function.
        """
        self.arrays: Final[list[np.ndarray]] = []
        body = self._encoded(value)
        tables = [[as_dtype(array.dtype).name, list(array.shape)] for array in self.arrays]
        self.text: Final = json.dumps([body, tables], separators=(",", ":")).encode()

    def _encoded(self, value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            self.arrays.append(np.asarray(value, order="C"))
            return {"array": len(self.arrays) - 1}
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, Handle):
            return {"handle": value.number}
        if isinstance(value, TensorSpec):
            return {"spec": [list(value.shape), value.dtype.name]}
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, Mapping):
            return {"map": [[self._encoded(key), self._encoded(item)] for key, item in value.items()]}
        if isinstance(value, Sequence):
            return [self._encoded(item) for item in value]
        raise InputError(f"a {type(value).__name__} cannot be told to other ranks: pass arrays, numbers, texts")


def read_written(text: bytes, payload: memoryview, object_of: Callable[[int], Any]) -> Any:
    """Returns the value of a message; sequences are tuples.

    Args:
        text: JSON.
        payload: the arrays, one behind the other; those of the value are views.
        object_of: returns the object with a number.

    Raises:
        ProcessError: the message is damaged, or names an object that is not known.
    """
    try:
        body, tables = json_value(text, LARGE_JSON_BOUNDS, nonfinite=True)
        return _decoded(body, [*_arrays(tables, payload)], object_of)
    except (ArithmeticError, LookupError, RecursionError, TapelineError, TypeError, ValueError) as error:
        raise ProcessError(
            f"a message of another rank cannot be read ({type(error).__name__}: {str(error)[:200]}): run the same "
            "version of Tapeline on all ranks"
        ) from error


def _arrays(tables: Sequence[Any], payload: memoryview) -> Iterator[np.ndarray]:
    at = 0
    for name, shape in tables:
        spec = TensorSpec(tuple(shape), name)
        flat = np.frombuffer(payload, spec.dtype.numpy, spec.size, at)
        yield flat.reshape(spec.shape)
        at += spec.nbytes


def _decoded(body: Any, arrays: Sequence[np.ndarray], object_of: Callable[[int], Any]) -> Any:
    if isinstance(body, list):
        return tuple(_decoded(item, arrays, object_of) for item in body)
    if not isinstance(body, dict):
        return body
    ((kind, content),) = body.items()
    if kind == "array":
        return arrays[content]
    if kind == "handle":
        return object_of(content)
    if kind == "spec":
        return TensorSpec(tuple(content[0]), content[1])
    if kind == "slice":
        return slice(*content)
    return {_decoded(key, arrays, object_of): _decoded(item, arrays, object_of) for key, item in content}
