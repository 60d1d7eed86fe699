"""Helper functions: private functions that rules share, written once per module, in StableHLO.

A target may have better code for one than its compiler makes of the StableHLO; it finds the function by its name
(``run_iree/kernels``).
"""

from collections.abc import Callable
from typing import Final, Literal, get_args

from compile_hlo.emit._builder import Write
from compile_hlo.emit._types import symbol

Helper = Literal[
    "block_quantize",
    "cached_attention",
    "cached_attention_quantize",
    "linear",
    "packed_linear",
    "rms_norm_quantize",
    "silu_quantize",
]
_HELPERS: Final = frozenset(get_args(Helper))


def helper_name(helper: Helper, case: str) -> str:
    """Returns the name of a helper function; ``case`` says all that its body depends on."""
    return f"{helper}.{case}"


def is_helper(function: str) -> bool:
    """Returns whether a function of a module is a helper function, not a block of the model."""
    helper, dot, _ = function.partition(".")
    return bool(dot) and helper in _HELPERS


class HelperFunctions:
    """Texts of a module's helper functions, by name."""

    def __init__(self) -> None:
        self._texts: Final[dict[str, str]] = {}

    def add(self, name: str, text: Callable[[], str]) -> str:
        """Returns the symbol of a function; ``text``, from its arguments to its last brace, is asked for once."""
        if name not in self._texts:
            self._texts[name] = text()
        return symbol(name)

    def end(self, write: Write) -> None:
        """Writes the functions."""
        for name, text in self._texts.items():
            write(f"  func.func private {symbol(name)}{text}")
