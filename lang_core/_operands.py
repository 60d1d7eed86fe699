"""Advice for operands that are not tensors."""

from collections.abc import Mapping
from typing import Any

from lang_core._parameter import Named, Parameter
from lang_core._spec import TensorSpec


def operand_advice(operand: Any) -> str:
    """Returns text that describes an operand and the value to pass instead; empty for data and numbers.

    >>> operand_advice([1.0, 2.0])
    'a list of float is not a tensor: pass its elements one by one, or make a tensor of it with ctx.ops.constant'
    """
    if isinstance(operand, Parameter):
        return f"{operand!r} is the name of a weight: read the weight with ctx.parameter"
    if isinstance(operand, Named):
        where = f" at {operand.path}" if operand.path else ""
        return f"{type(operand).__name__}{where} is a module: call it with the context, as in self.norm(ctx, x)"
    if isinstance(operand, TensorSpec):
        return f"{operand!r} is a spec without a value: make an input of it with ctx.ops.placeholder"
    if isinstance(operand, list | tuple):
        held = " and ".join(sorted({type(part).__name__ for part in operand})) or "nothing"
        return (
            f"a {type(operand).__name__} of {held} is not a tensor: pass its elements one by one, or make a tensor of "
            "it with ctx.ops.constant"
        )
    if operand is None or isinstance(operand, str | bytes | complex | Mapping | set) or callable(operand):
        return f"{operand!r} of type {type(operand).__name__} is not a tensor"
    return ""
