"""Readers of JSON values: accepted values, error messages, and the JSON schema of a field.

>>> Whole(0, 20).read(21, "top_logprobs")
Traceback (most recent call last):
    ...
tapeline.server._errors.RequestError: top_logprobs: expected a whole number from 0 to 20; found 21
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tapeline.server._errors import RequestError
from tapeline.server._values import joined, refuse


class Reader(Protocol):
    """Reader of one kind of JSON value.

    Attributes:
        expected: kind of value, for messages.
    """

    @property
    def expected(self) -> str: ...

    def read(self, value: Any, path: str) -> Any:
        """Returns the value as the server works with it.

        Raises:
            RequestError: the value is not of this kind; ``path`` names the field.
        """
        ...

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema of the values that are read."""
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """Reader of whole numbers.

    Attributes:
        least: smallest.
        most: largest; None if there is none.
    """

    least: int
    most: int | None = None

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return f"a whole number {_range(self.least, self.most)}"

    def read(self, value: Any, path: str) -> int:
        """Returns the number; JSON has one kind of numbers, so 2.0 is one as well."""
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not whole or isinstance(value, bool) or not _within(value, self.least, self.most):
            refuse(path, self.expected, value)
        return int(value)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return {"type": "integer", "minimum": self.least} | ({} if self.most is None else {"maximum": self.most})


@dataclass(frozen=True, slots=True)
class Number:
    """Reader of finite numbers.

    Attributes:
        least: smallest.
        most: largest; None if there is none.
        above: whether ``least`` itself is left out.
    """

    least: float
    most: float | None = None
    above: bool = False

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return f"a number above {self.least}" if self.above else f"a number {_range(self.least, self.most)}"

    def read(self, value: Any, path: str) -> float:
        """Returns the number."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not _finite(value) or not _within(value, self.least, self.most, self.above):
            refuse(path, self.expected, value)
        return float(value)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        low = {"exclusiveMinimum" if self.above else "minimum": self.least}
        return {"type": "number", **low} | ({} if self.most is None else {"maximum": self.most})


@dataclass(frozen=True, slots=True)
class Text:
    """Reader of strings.

    Attributes:
        least: fewest characters.
    """

    least: int = 0

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return "a string" if self.least == 0 else "a string that is not empty"

    def read(self, value: Any, path: str) -> str:
        """Returns the string."""
        if not isinstance(value, str) or len(value) < self.least:
            refuse(path, self.expected, value)
        return value

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return {"type": "string"} | ({"minLength": self.least} if self.least else {})


@dataclass(frozen=True, slots=True)
class Flag:
    """Reader of true and false."""

    expected: str = "true or false"

    def read(self, value: Any, path: str) -> bool:
        """Returns the flag."""
        if not isinstance(value, bool):
            refuse(path, self.expected, value)
        return value

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Anything:
    """Reader of any value, for fields that do not affect an answer."""

    expected: str = "any value"

    def read(self, value: Any, path: str) -> Any:
        """Returns the value."""
        return value

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return {}


@dataclass(frozen=True, slots=True)
class Choice:
    """Reader of one of a few values.

    Attributes:
        values: the values.
    """

    values: tuple[Any, ...]

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return " or ".join(map(json.dumps, self.values))

    def read(self, value: Any, path: str) -> Any:
        """Returns the value."""
        if not any(type(value) is type(one) and value == one for one in self.values):
            refuse(path, self.expected, value)
        return value

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return {"enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class Items:
    """Reader of lists.

    Attributes:
        item: reader of each value.
        least: fewest values.
        most: largest number of values; None if there is none.
    """

    item: Reader
    least: int = 0
    most: int | None = None

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        size = "" if (self.least, self.most) == (0, None) else f" of {_count(self.least, self.most)}"
        return f"a list{size}, each {self.item.expected}"

    def read(self, value: Any, path: str) -> tuple[Any, ...]:
        """Returns the values."""
        if not isinstance(value, list):
            refuse(path, self.expected, value)
        if not _within(len(value), self.least, self.most):
            refuse(path, f"a list of {_count(self.least, self.most)}", f"{len(value)} values")
        if isinstance(self.item, Whole):  # a million token ids: a path for each of them takes seconds
            return self._numbers(self.item, value, path)
        return tuple(self.item.read(one, joined(path, index)) for index, one in enumerate(value))

    def _numbers(self, item: Whole, values: list[Any], path: str) -> tuple[int, ...]:
        plain = set(map(type, values)) == {int}
        if plain and all(_within(one, item.least, item.most) for one in (min(values), max(values))):
            return tuple(values)
        return tuple(item.read(one, joined(path, index)) for index, one in enumerate(values))

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        least = {"minItems": self.least} if self.least else {}
        most = {} if self.most is None else {"maxItems": self.most}
        return {"type": "array", "items": self.item.schema(), **least, **most}


@dataclass(frozen=True, slots=True)
class Table:
    """Reader of objects with keys chosen by the client.

    Attributes:
        value: reader of each value; None takes any.
        most: largest number of keys; None if there is none.
    """

    value: Reader | None = None
    most: int | None = None

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return "an object" if self.most is None else f"an object of at most {self.most} keys"

    def read(self, value: Any, path: str) -> Mapping[str, Any]:
        """Returns the object."""
        if not isinstance(value, dict) or not _within(len(value), 0, self.most):
            refuse(path, self.expected, value)
        if self.value is None:
            return value
        return {key: self.value.read(one, joined(path, key)) for key, one in value.items()}

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        values = {} if self.value is None else {"additionalProperties": self.value.schema()}
        return {"type": "object", **values} | ({} if self.most is None else {"maxProperties": self.most})


@dataclass(frozen=True, slots=True)
class Either:
    """Reader of values of several kinds, which JSON's own types tell apart.

    Attributes:
        readers: a reader for each kind.
    """

    readers: tuple[Reader, ...]

    @property
    def expected(self) -> str:
        """Kind of value, for messages."""
        return ", or ".join(reader.expected for reader in self.readers)

    def read(self, value: Any, path: str) -> Any:
        """Returns the result of the first reader that accepts it."""
        errors: list[RequestError] = []
        for reader in self.readers:
            try:
                return reader.read(value, path)
            except RequestError as error:
                errors.append(error)
        inside = [error for error in errors if error.param != path]
        if len(inside) == 1:  # one reader knew the kind, and minds what is in it
            raise inside[0]
        return refuse(path, self.expected, value)

    def schema(self) -> dict[str, Any]:
        """Returns the JSON schema."""
        return {"anyOf": [reader.schema() for reader in self.readers]}


def _finite(value: float) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _within(value: float, least: float, most: float | None, above: bool = False) -> bool:
    return (value > least if above else value >= least) and (most is None or value <= most)


def _range(least: float, most: float | None) -> str:
    return f"of at least {least}" if most is None else f"from {least} to {most}"


def _count(least: int, most: int | None) -> str:
    return f"at least {least}" if most is None else f"{least} to {most}" if least else f"at most {most}"
