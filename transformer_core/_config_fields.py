"""Fields of a JSON configuration, read with checks that name the field."""

import contextlib
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, NoReturn

from lang_core import ConfigError, checked_choices, near_names, some_of
from transformer_core._config_bounds import BOUNDS, LARGEST, LARGEST_NUMBER

_SHOWN_BITS: Final = 256

_ASKED: Final[ContextVar[set[str] | None]] = ContextVar("asked", default=None)


@contextlib.contextmanager
def asked_names() -> Iterator[set[str]]:
    """Yields the set that receives the names of all fields that the block asks for, whether they are there or not."""
    names: set[str] = set()
    token = _ASKED.set(names)
    try:
        yield names
    finally:
        _ASKED.reset(token)


def _ask(name: object) -> None:
    names = _ASKED.get()
    if names is not None and isinstance(name, str):
        names.add(name)


class _Values(dict[str, Any]):
    """Values of a JSON object; those that are asked for by their name are noted, those that are copied are not."""

    def get(self, key: str, default: Any = None, /) -> Any:
        _ask(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        _ask(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        _ask(key)
        return super().__contains__(key)


class ConfigFields:
    """The fields of one JSON object. A field that is null counts as absent, as in Hugging Face's files.

    Args:
        values: the object.
        where: the file, and the field that holds the object if it is an inner one; messages begin with it.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values: Final[Mapping[str, Any]] = _Values(values) if type(values) is dict else values
        self.where: Final = where

    def has(self, name: str) -> bool:
        """Returns whether the field is present and not null."""
        return self.values.get(name) is not None

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        """Reads an integer of at least ``minimum``; ``default`` if absent, unless that is None.

        The largest value is that of ``BOUNDS``, so that later loops and allocations are bounded.

        Raises:
            ConfigError: the field is absent without a default, of another type, too small or too large.
        """
        expected = f"an integer of at least {minimum}"
        value = self._value(name, default, expected)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            self.refuse(name, expected)
        if value > (most := BOUNDS.get(name, LARGEST)):
            self.refuse(name, f"an integer of at most {most}")
        return value

    def number(self, name: str, default: float | None = None, above: float = 0.0) -> float:
        """Reads a finite number greater than ``above``; otherwise as ``integer``.

        Raises:
            ConfigError: the field is missing without a default, or is not such a number.
        """
        expected = f"a finite number above {above:g}"
        value = self._value(name, default, expected)
        if not _is_number(value) or value <= above:
            self.refuse(name, expected)
        return float(value)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """Reads a list of ``count`` finite numbers above 0.

        Raises:
            ConfigError: the field is missing without a default, or is not such a list.
        """
        expected = f"a list of {count} finite numbers above 0"
        value = self._value(name, None, expected)
        if not isinstance(value, list) or len(value) != count or not all(_is_number(x) and x > 0 for x in value):
            self.refuse(name, expected)
        return tuple(float(x) for x in value)

    @checked_choices
    def boolean(self, name: str, default: bool) -> bool:
        """Reads true or false.

        Raises:
            ConfigError: the field is missing without a default, or is neither.
        """
        value = self._value(name, default, "true or false")
        if not isinstance(value, bool):
            self.refuse(name, "true or false")
        return value

    def choice(self, name: str, known: Iterable[str], default: str | None = None) -> str:
        """Reads one of the known strings; the error lists them, near ones last.

        Raises:
            ConfigError: the field is missing without a default, or is another string.
        """
        names = tuple(known)
        expected = f"one of {some_of(str(self.values.get(name)), names)}"
        value = self._value(name, default, expected)
        if value not in names:
            self.refuse(name, expected + near_names(str(value), names))
        return value

    def object(self, name: str) -> "ConfigFields":
        """Returns the fields of an inner object.

        Raises:
            ConfigError: the field is missing, or is not an object.
        """
        value = self._value(name, None, "an object")
        if not isinstance(value, Mapping):
            self.refuse(name, "an object")
        return ConfigFields(value, f"{self.where}: {name}")

    def renamed(self, names: Mapping[str, str]) -> "ConfigFields":
        """Returns the fields of a family that has other names for some; a field may have either name.

        Args:
            names: the family's name by the usual one.
        """
        further = {name: self.values[own] for name, own in names.items() if self.has(own)}
        return ConfigFields({**self.values, **further}, self.where)

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Raises ConfigError: the field has an unexpected value."""
        raise ConfigError(
            f"{self.where}: field {name!r}: expected {expected}; found {_REPR.repr(self.values.get(name))}"
        )

    def _value(self, name: str, default: Any, expected: str) -> Any:
        value = self.values.get(name)
        if value is not None:
            return value
        if default is None:
            hint = near_names(name, self.values)
            raise ConfigError(f"{self.where}: field {name!r} is missing: expected {expected}{hint}")
        return default


def _is_number(value: Any) -> bool:
    """Returns whether a value is a number within 32-bit floats."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


class _Repr(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        del level
        return f"an integer of {x.bit_length()} bits" if x.bit_length() > _SHOWN_BITS else repr(x)


_REPR: Final = _Repr()
_REPR.maxstring = _REPR.maxother = 200
_REPR.maxlist = _REPR.maxdict = _REPR.maxtuple = 12
