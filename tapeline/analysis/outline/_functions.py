"""Private functions of a module's text, and the one count of their call sites."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lang_core import InputError
from tapeline.analysis.outline._lines import head, lines, symbol

_CALL: Final = re.compile(r"\s+(?:%[\w.:]+ = )?(?:func\.)?call @")


@dataclass(slots=True)
class PrivateFunction:
    """Private function of a module.

    Attributes:
        name: symbol.
        arguments: types of the arguments, in order, such as ``f32[1,64]``.
        results: types of the results, in order.
        call_sites: number of calls in the text, of all functions.
    """

    name: str
    arguments: list[str]
    results: list[str]
    call_sites: int = 0


def called_function(text: str) -> str | None:
    """Returns the function that a line calls; None if the line is not a call.

    >>> called_function("    %3:2 = func.call @linear.f32(%1) : (tensor<2xf32>) -> (tensor<2xf32>)")
    'linear.f32'
    """
    return symbol(text) if _CALL.match(text) else None


def private_functions(path: Path) -> dict[str, PrivateFunction]:
    """Reads the private functions of ``module.mlir`` by name, in the order of the text.

    Raises:
        InputError: the file cannot be read.
    """
    functions: dict[str, PrivateFunction] = {}
    calls: dict[str, int] = {}
    for text in _lines(path):
        called = called_function(text)
        if called is not None:
            calls[called] = calls.get(called, 0) + 1
        elif text.startswith("  func.func private "):
            function = head(text)
            if function is not None:
                kinds = [kind for _, kind in function.arguments]
                functions[function.name] = PrivateFunction(function.name, kinds, function.results)
    for name, function in functions.items():
        function.call_sites = calls.get(name, 0)
    return functions


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from lines(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): export the bundle again") from None
