"""Hashes of a kernel's source: its methods, its base classes, and the functions and constants that they use."""

import hashlib
import inspect
import sys
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

_PLAIN: Final = (bool, int, float, str, bytes, type(None), tuple, frozenset)


@cache
def source_hash(kernel: type, base: type) -> str:
    """Returns 12 hexadecimal digits that change with the source of a class.

    Args:
        kernel: class to hash.
        base: class that is left out, together with its base classes.
    """
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
    digest.update(_text(thing))
    module = sys.modules.get(thing.__module__)
    names = {name for code in _codes(thing) for name in _names(code)}
    for name in sorted(names):
        used = getattr(module, name, None)
        if isinstance(used, FunctionType | type) and _beside(used.__module__, thing.__module__):
            _take(used, digest, seen)
        elif isinstance(used, _PLAIN) and not isinstance(used, ModuleType) and not name.startswith("__"):
            digest.update(f"{name}={used!r}".encode())


def _beside(module: str, other: str) -> bool:
    """Returns whether two modules are the same or in the same package."""
    package = module.rpartition(".")[0]
    return module == other or (package != "" and package == other.rpartition(".")[0])


def _text(thing: Any) -> bytes:
    try:
        return inspect.getsource(thing).encode()
    except (OSError, TypeError):  # defined without a file, as in an interactive session
        return b"".join(code.co_code + repr(_constants(code)).encode() for code in _codes(thing))


def _constants(code: CodeType) -> list[Any]:
    return [value for value in code.co_consts if not isinstance(value, CodeType)]


def _codes(thing: Any) -> list[CodeType]:
    members = vars(thing).values() if isinstance(thing, type) else [thing]
    functions = [getattr(member, "__func__", getattr(member, "fget", member)) for member in members]
    return [function.__code__ for function in functions if isinstance(function, FunctionType)]


def _names(code: CodeType) -> set[str]:
    inner = [_names(value) for value in code.co_consts if isinstance(value, CodeType)]
    return set(code.co_names).union(*inner)
