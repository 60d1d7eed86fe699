"""Keyword arguments that a function does not have: the error names near ones."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from lang_core._errors import KeywordError, near_names, some_of

T = TypeVar("T")
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def check_keywords(function: Callable[..., Any], title: str, keywords: Iterable[str]) -> None:
    """Checks the keyword arguments of a call that failed with a TypeError.

    Args:
        function: function that was called.
        title: name of the function for the message.
        keywords: names of the call's keyword arguments.

    Raises:
        KeywordError: the function lacks an argument of this name.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters if parameter.kind in _NAMED and parameter.name != "self"]
    for name in keywords:
        if name not in known:
            available = some_of(name, known) or "none"
            raise KeywordError(f"{title}: no argument {name!r}{near_names(name, known)}; available: {available}")


def near_keywords(target: T) -> T:
    """Makes a misspelt keyword argument of a function, or of a class's public methods, a KeywordError.

    Args:
        target: function, or class to change.

    Returns:
        The function in a wrapper, or the class itself.

    >>> @near_keywords
    ... def scaled(x, factor=1.0):
    ...     return x * factor
    >>> scaled(2.0, facter=3.0)
    Traceback (most recent call last):
    lang_core._errors.KeywordError: scaled: no argument 'facter'; did you mean 'factor'?; available: x, factor
    """
    if not inspect.isclass(target):
        function: Any = target
        return _wrapped(function, function.__qualname__)
    for name, member in list(vars(target).items()):
        if (not name.startswith("_") or name == "__init__") and inspect.isfunction(member):
            title = target.__name__ if name == "__init__" else f"{target.__name__}.{name}"
            setattr(target, name, _wrapped(member, title))
    return target


def _wrapped(function: Callable[..., Any], title: str) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            check_keywords(function, title, kwargs)
            raise

    return call
