"""Hashes of a kernel's source: its methods, its base classes, and the functions and constants that they use."""

import hashlib
import inspect
import json
import sys
import threading
import tokenize
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, Final

from autotune.kernel._errors import KernelError
from autotune.kernel._values import beside, code_text, describe, functions_of, names_of

_PLAIN: Final = (bool, int, float, str, bytes, type(None), tuple, frozenset)
# Reading source files by several threads at once raises errors of the interpreter's own (cpython#106905).
_READING: Final = threading.RLock()
_UNREADABLE: Final = (OSError, TypeError, SystemError, IndexError, SyntaxError, tokenize.TokenError)


def source_hash(kernel: type, base: type) -> str:
    """Returns 12 hexadecimal digits that change with the source of a class, and with the values it was made with.

    Args:
        kernel: class to hash.
        base: class that is left out, together with its base classes.
    """
    with _READING:
        return _source_hash(kernel, base)


@cache
def _source_hash(kernel: type, base: type) -> str:
    digest = hashlib.sha256()
    seen: set[Any] = set()
    for part in kernel.__mro__:
        if part is not object and not issubclass(base, part):
            _take(part, digest, seen)
    return digest.hexdigest()[:12]


def _take(thing: Any, digest: Any, seen: set[Any]) -> None:
    if thing in seen:
        return
    seen.add(thing)
    functions = _functions(thing)
    for function in functions:
        digest.update(_text(function))
        digest.update(_values(function, digest, seen))
    if isinstance(thing, type):
        for name, value in vars(thing).items():
            if isinstance(value, _PLAIN) and not name.startswith("__"):
                digest.update(_constant(name, value))
    module = sys.modules.get(thing.__module__)
    names = {name for function in functions for name in names_of(function.__code__)}
    for name in sorted(names):
        used = getattr(module, name, None)
        if isinstance(used, FunctionType | type) and beside(used.__module__, thing.__module__):
            _take(used, digest, seen)
        elif isinstance(used, _PLAIN) and not isinstance(used, ModuleType) and not name.startswith("__"):
            digest.update(_constant(name, used))


def _functions(thing: Any) -> list[FunctionType]:
    members = vars(thing).values() if isinstance(thing, type) else [thing]
    return [function for member in members for function in functions_of(member)]


def _values(function: FunctionType, digest: Any, seen: set[Any]) -> bytes:
    """Returns a text of the defaults and the closure of a function; takes the functions among them."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    values: dict[str, Any] = {"defaults": function.__defaults__, "kwdefaults": function.__kwdefaults__}
    for name, cell in cells.items():
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            values[name] = None
    texts: list[str] = []
    for name, value in values.items():
        if isinstance(value, FunctionType | type) and beside(value.__module__, function.__module__):
            _take(value, digest, seen)
        elif value is not None:
            texts.append(_constant(name, value).decode())
    return "".join(texts).encode()


def _constant(name: str, value: Any) -> bytes:
    try:
        return f"{name}={json.dumps(describe(value), sort_keys=True)}".encode()
    except KernelError:  # a value that other processes do not understand is known by its class
        return f"{name}: {type(value).__module__}.{type(value).__qualname__}".encode()


def _text(function: FunctionType) -> bytes:
    try:
        return inspect.getsource(function).encode()
    except _UNREADABLE:  # defined without a file, as in an interactive session
        return code_text(function.__code__).encode()
