"""Calls of helper functions."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from compile_hlo.emit._builder import SsaValue
from compile_hlo.emit._emitter import Emitter
from compile_hlo.emit._forms import ArgumentParameters
from compile_hlo.emit._helpers import Helper, helper_record
from compile_hlo.emit._sites import Call
from compile_hlo.emit._types import symbol, tensor_type
from lang_core import TensorSpec

_NO_PARAMETERS: Final = ArgumentParameters()  # a helper function is given all that it computes with


def call_helper(
    e: Emitter,
    helper: Helper,
    given: Sequence[SsaValue],
    results: Sequence[TensorSpec],
    body: Callable[..., Sequence[str]],
) -> str:
    """Calls a helper function and returns the name of its result.

    Args:
        e: emitter of the caller.
        helper: function to call.
        given: passed values.
        results: specs.
        body: writes the function and returns the names of its results; called with an emitter and one argument for
            each value that is passed.
    """
    helper = e.helpers.of_caller(helper)
    kinds = ", ".join([value.kind for value in given])
    made = ", ".join(map(tensor_type, results))

    def body_text() -> str:
        lines: list[str] = []
        inner = Emitter(lines.append, _NO_PARAMETERS, helpers=e.helpers, overrides=e.overrides, locations=e.locations)
        inner.locate(helper.name)
        arguments = [SsaValue(f"%a{i}", value.spec) for i, value in enumerate(given)]
        inner.line(f"return {', '.join(body(inner, *arguments))} : {made}")
        return "".join(lines)

    function = e.helpers.functions.get(helper.name)
    if function is None:
        function = helper_record(helper, [value.spec for value in given], results, e.path)
        e.helpers.add(function, body_text())
    e.calls(function)
    node, site = e.node, None
    if e.tracer is not None and node is not None:
        sources, values = [value.number for value in node.inputs], [value.number for value in node.results]
        site = e.tracer.before(e, Call(function, e.path, node.line, e.in_region, given, sources, values))
    names = ", ".join([value.name for value in given])
    name = e.new(f"func.call {symbol(helper.name)}({names}) : ({kinds}) -> ({made})", len(results))
    if e.tracer is not None and site is not None:
        several = len(results) > 1
        values = [SsaValue(f"{name}#{i}" if several else name, spec) for i, spec in enumerate(results)]
        e.tracer.after(e, site, values)
    return name


def flat(shape: Sequence[int]) -> tuple[int, int]:
    """Returns a shape as a matrix's: all but the last dim together.

    >>> flat((2, 3, 5)), flat((5,))
    ((6, 5), (1, 5))
    """
    return math.prod(shape[:-1]), shape[-1]


def in_name(number: float) -> str:
    """Spells a number exactly, in characters that names have: ``0x1.0p-3`` with an ``m`` for the minus."""
    return number.hex().replace("+", "").replace("-", "m")
