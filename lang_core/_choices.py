"""Arguments with a fixed set of values: enumerations, named choices (``typing.Literal``) and flags.

A value is converted if it can mean one choice only, and refused otherwise. Python does not check annotations, and
``mode is RopeMode.SPLIT_HALF`` is quietly False of the string ``"split_half"``.
"""

import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from lang_core._errors import ChoiceError, near_names
from lang_core._keywords import check_keywords

E = TypeVar("E", bound=enum.Enum)
F = TypeVar("F", bound=Callable[..., Any])

_UNMATCHED: Final = object()
_COLLECTIONS: Final = (tuple, list, set, frozenset)


def choice(kind: type[E], value: Any, name: str) -> E:
    """Returns the member of an enumeration that a value stands for: itself, its value, or its name.

    Args:
        kind: enumeration.
        value: the argument.
        name: name of the argument, for the message.

    Raises:
        ChoiceError: the value does not name a member.
    """
    return _convert(_options_of(kind), value, name)


def flag(value: Any, name: str) -> bool:
    """Returns a flag as a bool; takes Python's and NumPy's bools only, not other truthy values.

    Args:
        value: the argument.
        name: name of the argument, for the message.

    Raises:
        ChoiceError: the value is not a bool.
    """
    return value if value is True or value is False else _convert(_options_of(bool), value, name)


def checked_choices(target: F) -> F:
    """Converts or refuses the arguments of a function, or of a class's constructor, that have a fixed set of values.

    Goes by the annotations: enumerations, ``typing.Literal`` and bool, alone, in unions, and in tuples, sequences and
    mappings. A dataclass takes this decorator above ``@dataclass``.

    Args:
        target: function or class to check.

    Returns:
        The function in a wrapper, or the class itself.

    Raises:
        ChoiceError: at a call: an argument is none of the values.

    >>> import enum
    >>> class Side(enum.Enum):
    ...     LEFT = "left"
    ...     RIGHT = "right"
    >>> @checked_choices
    ... def turned(side: Side, quickly: bool = False):
    ...     return side
    >>> turned("left")
    <Side.LEFT: 'left'>
    """
    kind: Any = target
    if not inspect.isclass(kind):
        return _wrapped(kind, kind.__qualname__)
    constructor = "__new__" if issubclass(kind, tuple) else "__init__"
    setattr(kind, constructor, _wrapped(getattr(kind, constructor), kind.__name__))
    return target


def _wrapped(function: Callable[..., Any], title: str) -> Any:
    """Returns a function that settles arguments before it calls another; ``title`` is the callable's name in errors."""
    named: dict[str, _Options] = {}
    placed: list[tuple[int, str, _Options]] = []
    rest: tuple[int, str, _Options] | None = None
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        options = _options_of(parameter.annotation)
        if not options.has_choices:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = index, f"{title}: {parameter.name}", options
            continue
        named[parameter.name] = options
        if parameter.kind is not parameter.KEYWORD_ONLY:
            placed.append((index, f"{title}: {parameter.name}", options))

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for index, name, options in placed:
            if index >= len(args):
                break
            value = args[index]
            if type(value) in options.plain:
                continue
            settled = _convert(options, value, name)
            if settled is not value:
                args = (*args[:index], settled, *args[index + 1 :])
        if rest is not None:
            first, name, options = rest
            args = (*args[:first], *(_convert(options, value, name) for value in args[first:]))
        for name, value in kwargs.items():
            options = named.get(name)
            if options is not None and type(value) not in options.plain:
                kwargs[name] = _convert(options, value, f"{title}: {name}")
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_keywords(function, title, kwargs)
            raise

    return checked


class _Options:
    """Values that an annotation allows, as far as they are a fixed set.

    Attributes:
        has_choices: whether any part of the annotation is an enumeration, a Literal or bool.
        plain: classes with values that are allowed unchanged, recognised at once.
    """

    __slots__ = ("_flag", "_inside", "_kinds", "_members", "_others", "has_choices", "plain")

    def __init__(self, annotation: Any) -> None:
        self._members: list[Any] = []
        self._kinds: list[type[enum.Enum]] = []
        self._flag = False
        self._inside: list[tuple[type, tuple[_Options, ...]]] = []  # a collection, and what it holds
        self._others: list[type | None] = []  # None: a part that is not checked here, so that anything passes
        arms = _arms_of(annotation)
        numeric = int in arms or float in arms  # a bool beside them is one more number
        for arm in arms:
            if arm is bool and numeric:
                self._others.append(bool)
            else:
                self._add(arm)
        self.has_choices = bool(self._members or self._flag or self._inside)
        plain = {*self._kinds, bool} if self._flag else {*self._kinds}
        self.plain = frozenset({*plain, types.NoneType} if types.NoneType in self._others else plain)

    def _add(self, arm: Any) -> None:
        origin = typing.get_origin(arm)
        if origin is typing.Literal:
            self._members += typing.get_args(arm)
        elif inspect.isclass(arm) and issubclass(arm, enum.Enum) and origin is None:
            self._members += arm
            self._kinds.append(arm)
        elif arm is bool:
            self._flag = True
        elif inspect.isclass(origin) and issubclass(origin, Collection):
            held = tuple(_options_of(held) for held in typing.get_args(arm) if held is not Ellipsis)
            if any(options.has_choices for options in held):
                self._inside.append((origin, held))
            else:
                self._others.append(origin)
        else:
            self._others.append(_plain_class(origin or arm))

    def match(self, value: Any) -> Any:
        """Returns the value, or the choice that it names; ``_UNMATCHED`` if it names none."""
        if self._flag and isinstance(value, bool | np.bool_):
            return bool(value)
        if any(isinstance(value, kind) for kind in self._kinds):
            return value  # a member, or several of an enum.Flag
        for member in self._members:
            if _same(member, value):
                return member
        for collection, held in self._inside:
            if isinstance(value, collection) and not isinstance(value, str):
                return self._collection(value, held)
            if collection is tuple and isinstance(value, list):
                return self._collection(tuple(value), held)
        if any(other is None or isinstance(value, other) for other in self._others):
            return value
        if float in self._others and type(value) is int:
            return value
        for member in self._members:
            if isinstance(member, enum.Enum) and (_same(member.value, value) or _same(member.name, value)):
                return member
        return _UNMATCHED

    def _collection(self, value: Any, held: "tuple[_Options, ...]") -> Any:
        if isinstance(value, Mapping):
            keys, values = (held[0], held[-1])
            settled = {keys.match(key): values.match(item) for key, item in value.items()}
            both = [*settled, *settled.values()]
            before: list[Any] = [*value, *value.values()]
        else:
            before = list(value)
            parts = held if len(held) == len(before) else held[:1] * len(before)
            both = [options.match(item) for options, item in zip(parts, before, strict=True)]
            settled = next((kind for kind in _COLLECTIONS if isinstance(value, kind)), tuple)(both)
        if any(item is _UNMATCHED for item in both):
            return _UNMATCHED
        return value if all(a is b for a, b in zip(both, before, strict=True)) else settled

    def expected(self) -> str:
        """Returns the allowed values as a person reads them."""
        if self._flag and not self._members and not self._inside and set(self._others) <= {types.NoneType}:
            return "true or false"
        return f"one of {', '.join(self.texts())}"

    def texts(self) -> Iterator[str]:
        """Yields the allowed values as a person writes them."""
        for member in self._members:
            yield str(member.value if isinstance(member, enum.Enum) else member)
        if self._flag:
            yield from ("true", "false")
        for collection, held in self._inside:
            yield f"a {collection.__name__} of {', '.join(text for options in held for text in options.texts())}"
        yield from ("None" if other is types.NoneType else f"a {other.__name__}" for other in self._others if other)


@functools.cache
def _options_of(annotation: Any) -> _Options:
    return _Options(annotation)


def _convert(options: _Options, value: Any, name: str) -> Any:
    settled = options.match(value)
    if settled is _UNMATCHED:
        hint = near_names(value, options.texts()) if isinstance(value, str) else ""
        raise ChoiceError(f"{name}: expected {options.expected()}; found {value!r}{hint}")
    return settled


def _arms_of(annotation: Any) -> Sequence[Any]:
    united = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if united else (annotation,)


def _plain_class(annotation: Any) -> type | None:
    """Returns the class that values of an annotation are instances of; None if that cannot be asked."""
    unknown = not inspect.isclass(annotation) or annotation is inspect.Parameter.empty
    return None if unknown or getattr(annotation, "_is_protocol", False) else annotation


def _same(own: Any, value: Any) -> bool:
    return type(own) is type(value) and own == value
