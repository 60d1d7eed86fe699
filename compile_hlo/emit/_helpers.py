"""Helper functions: private functions that rules share, written once per module, in StableHLO.

A target may have better code for one than its compiler makes of the StableHLO; it chooses by the function's record
(``run_iree/kernels``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from compile_hlo.directions import Attribute, KernelSignature
from compile_hlo.emit._builder import Write
from compile_hlo.emit._types import symbol

HelperKind = Literal[
    "block_quantize",
    "cached_attention",
    "cached_attention_quantize",
    "linear",
    "packed_linear",
    "rms_norm_quantize",
    "silu_quantize",
]
_KINDS: Final = frozenset(get_args(HelperKind))


@dataclass(frozen=True, slots=True)
class Helper:
    """Helper function that a rule wants to call.

    Attributes:
        kind: op or group of ops that it computes.
        case: all else that its body depends on, in characters that names have.
        attributes: constants that its tensors' specs do not have, by name.
    """

    kind: HelperKind
    case: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Symbol of the function."""
        return f"{self.kind}.{self.case}"


def is_helper(function: str) -> bool:
    """Returns whether a function of a module is a helper function, not a block of the model."""
    kind, dot, _ = function.partition(".")
    return bool(dot) and kind in _KINDS


class HelperFunctions:
    """Helper functions of a module.

    Attributes:
        functions: their records, by name.
    """

    def __init__(self) -> None:
        self._texts: Final[dict[str, str]] = {}
        self.functions: Final[dict[str, KernelSignature]] = {}

    def add(self, function: KernelSignature, text: Callable[[], str]) -> KernelSignature:
        """Returns the record of a function.

        Args:
            function: record of the function for a first call.
            text: returns the function from its arguments to its last brace; called once.
        """
        name = function.name
        if name not in self._texts:
            self._texts[name] = text()
            self.functions[name] = function
        return self.functions[name]

    def end(self, write: Write) -> None:
        """Writes the functions."""
        for name, text in self._texts.items():
            write(f"  func.func private {symbol(name)}{text}")
