"""Calls of helper functions."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._forms import ArgumentParameters
from compile_hlo.emit._helpers import Helper, helper_name
from compile_hlo.emit._types import tensor_type
from lang_core import TensorSpec

_NO_PARAMETERS: Final = ArgumentParameters()  # a helper function is given all that it computes with


def call_helper(
    e: Emitter,
    helper: Helper,
    case: str,
    given: Sequence[tuple[str, TensorSpec]],
    results: Sequence[TensorSpec],
    body: Callable[[Emitter], Sequence[str]],
) -> str:
    """Calls a helper function, whose body finds its arguments as %a0, %a1, ...; returns the name of what it gives.

    Args:
        e: of the caller.
        helper: which.
        case: all that the body depends on, in characters that names have.
        given: names and specs of the arguments.
        results: specs.
        body: writes the function and returns the names of its results.
    """
    kinds = [tensor_type(spec) for _, spec in given]
    made = ", ".join(map(tensor_type, results))

    def text() -> str:
        lines: list[str] = []
        inner = Emitter(lines.append, _NO_PARAMETERS, helpers=e.helpers)
        found = body(inner)
        inner.line(f"return {', '.join(found)} : {made}")
        heads = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(kinds))
        return f"({heads}) -> ({made}) {{\n{''.join(lines)}  }}\n"

    target = e.helpers.add(helper_name(helper, case), text)
    names = ", ".join(each for each, _ in given)
    return e.new(f"func.call {target}({names}) : ({', '.join(kinds)}) -> ({made})", len(results))


def flat(shape: Sequence[int]) -> tuple[int, int]:
    """A shape as a matrix: all but the last dim together.

    >>> flat((2, 3, 5)), flat((5,))
    ((6, 5), (1, 5))
    """
    return math.prod(shape[:-1]), shape[-1]


def in_name(number: float) -> str:
    """A number, exactly, of the characters that names have: ``0x1.0p-3`` with an ``m`` for the minus."""
    return number.hex().replace("+", "").replace("-", "m")
