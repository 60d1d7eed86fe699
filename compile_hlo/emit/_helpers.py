"""Private functions that rules share: written once per module, in StableHLO, whatever calls them.

A target may have better code for one than what its compiler makes of the StableHLO; it finds the function by its name
(``compile_hlo/iree/_kernels.py``).
"""

from collections.abc import Callable
from typing import Final

from compile_hlo.emit._types import symbol

Write = Callable[[str], object]


class HelperFunctions:
    """The texts of a module's helper functions, by name."""

    def __init__(self) -> None:
        self._texts: Final[dict[str, str]] = {}

    def add(self, name: str, text: Callable[[], str]) -> str:
        """Returns the symbol of a function; ``text``, from its arguments to its last brace, is asked for once."""
        if name not in self._texts:
            self._texts[name] = text()
        return symbol(name)

    def names(self) -> list[str]:
        """Those so far."""
        return list(self._texts)

    def end(self, write: Write) -> None:
        """Writes the functions."""
        for name, text in self._texts.items():
            write(f"  func.func private {symbol(name)}{text}")
