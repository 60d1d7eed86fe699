"""Errors of Python's operators and NumPy's functions on tensors: each names the op to call.

``x + y`` lacks a context, so it cannot tell where it computes or which recording gets it. Where a caller gave an array
in place of a tensor it would follow NumPy's rules eagerly and the op table's in a recording. ``ctx.ops`` is the only
way.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from lang_core._errors import OperatorError, UnknownNameError

_X, _Y = "x", "y"

# By the method's name: the operator as Python writes it, and the calls to write in its place.
_BINARY: Final = {
    "add": ("+", "ctx.ops.add({x}, {y})"),
    "sub": ("-", "ctx.ops.sub({x}, {y})"),
    "mul": ("*", "ctx.ops.mul({x}, {y})"),
    "truediv": ("/", "ctx.ops.div({x}, {y})"),
    "floordiv": (
        "//",
        "ctx.ops.floor(ctx.ops.div({x}, {y})), or for integers ctx.ops.quotient({x}, {y}), which rounds towards zero",
    ),
    "mod": ("%", "ctx.ops.rem({x}, {y}), which has the sign of {x}"),
    "divmod": ("divmod()", "ctx.ops.quotient({x}, {y}) and ctx.ops.rem({x}, {y})"),
    "pow": ("**", "ctx.ops.pow({x}, {y})"),
    "matmul": ("@", "ctx.ops.linear({x}, weight) for {x} @ weight.T, or ctx.ops.dot_general"),
    "and": ("&", "ctx.ops.logical_and({x}, {y}), or for integers ctx.ops.bitwise_and({x}, {y})"),
    "or": ("|", "ctx.ops.logical_or({x}, {y}), or for integers ctx.ops.bitwise_or({x}, {y})"),
    "xor": ("^", "ctx.ops.logical_xor({x}, {y}), or for integers ctx.ops.bitwise_xor({x}, {y})"),
    "lshift": ("<<", "ctx.ops.shift_left({x}, {y})"),
    "rshift": (">>", "ctx.ops.shift_right_logical({x}, {y})"),
}
_COMPARISONS: Final = {
    "lt": ("<", "ctx.ops.less({x}, {y})"),
    "le": ("<=", "ctx.ops.less_equal({x}, {y})"),
    "gt": (">", "ctx.ops.greater({x}, {y})"),
    "ge": (">=", "ctx.ops.greater_equal({x}, {y})"),
}
_UNARY: Final = {
    "neg": ("-", "ctx.ops.negate({x})"),
    "pos": ("+", "{x} itself"),
    "abs": ("abs()", "ctx.ops.abs({x})"),
    "invert": ("~", "ctx.ops.logical_not({x}), or for integers ctx.ops.bitwise_xor({x}, -1)"),
    "round": ("round()", "ctx.ops.round({x})"),
    "floor": ("math.floor()", "ctx.ops.floor({x})"),
    "ceil": ("math.ceil()", "ctx.ops.ceil({x})"),
    "trunc": ("math.trunc()", "ctx.ops.cast({x}, 'i32')"),
    "getitem": ("[]", "ctx.ops.slice, ctx.ops.slice_axis, ctx.ops.take or ctx.ops.dynamic_slice"),
    "setitem": ("[] =", "ctx.ops.put, ctx.ops.scatter or ctx.ops.dynamic_update_slice, which return a new tensor"),
    "delitem": ("del []", "ctx.ops.slice or ctx.ops.concat"),
    "contains": ("in", "ctx.ops.any(ctx.ops.equal({x}, {y}))"),
}
# Functions of NumPy by name, if the op has another one; a method such as ``reduce`` is a part of the key.
_FUNCTIONS: Final = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "floor_divide": "quotient",
    "remainder": "rem",
    "divmod": "quotient or rem",
    "fmod": "rem",
    "power": "pow",
    "float_power": "pow",
    "negative": "negate",
    "positive": "x itself",
    "absolute": "abs",
    "fabs": "abs",
    "rint": "round",
    "trunc": "cast",
    "square": "mul",
    "reciprocal": "div",
    "matmul": "linear or dot_general",
    "vecdot": "dot_general",
    "matvec": "linear or dot_general",
    "vecmat": "dot_general",
    "fmax": "maximum",
    "fmin": "minimum",
    "invert": "logical_not",
    "left_shift": "shift_left",
    "right_shift": "shift_right_logical",
    "add.reduce": "sum",
    "add.accumulate": "cumsum",
    "multiply.reduce": "prod",
    "maximum.reduce": "max",
    "minimum.reduce": "min",
    "fmax.reduce": "max",
    "fmin.reduce": "min",
    "logical_and.reduce": "all",
    "logical_or.reduce": "any",
    "bitwise_and.reduce": "all",
    "bitwise_or.reduce": "any",
}
# Functions of NumPy that have the name of their op.
_SAME_NAMES: Final = frozenset(
    "add maximum minimum equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
    "logical_not bitwise_and bitwise_or bitwise_xor sign exp expm1 log log1p tanh sqrt sin cos floor ceil".split()
)
# Attributes of arrays of NumPy, PyTorch and JAX that tensors lack, with the op or the attribute in their place.
ARRAY_ATTRIBUTES: Final = {
    "T": "ctx.ops.transpose",
    "mT": "ctx.ops.transpose",
    "permute": "ctx.ops.transpose",
    "swapaxes": "ctx.ops.transpose",
    "view": "ctx.ops.reshape",
    "flatten": "ctx.ops.reshape",
    "ravel": "ctx.ops.reshape",
    "squeeze": "ctx.ops.reshape",
    "unsqueeze": "ctx.ops.reshape",
    "expand": "ctx.ops.broadcast",
    "astype": "ctx.ops.cast",
    "to": "ctx.ops.cast",
    "float": "ctx.ops.cast",
    "half": "ctx.ops.cast",
    "matmul": "ctx.ops.linear or ctx.ops.dot_general",
    "dot": "ctx.ops.linear or ctx.ops.dot_general",
    "clip": "ctx.ops.clamp",
    "where": "ctx.ops.select",
    "masked_fill": "ctx.ops.select",
    "item": "float(x), or x.numpy(), which a recorded value does not have",
    "tolist": "x.numpy().tolist(), which a recorded value does not have",
    "size": "x.spec.size",
    "nbytes": "x.spec.nbytes",
    **{
        name: f"ctx.ops.{name}"
        for name in (
            "abs add all any argmax argmin ceil clamp cos cumsum div equal erf exp floor gather log max mean min mul "
            "pow prod reshape round rsqrt scatter sin softmax sort split sqrt sub sum take tanh transpose"
        ).split()
    },
}


class NoOperators:
    """Base of values that are computed with by ``ctx.ops`` alone: operators are errors that name the op to call."""

    __slots__ = ()

    def _as_operand(self) -> tuple[str, str]:
        """Returns text that describes the value, and advice that precedes the call of an op; may be empty."""
        return f"a {type(self).__name__}", ""

    def _refuse(self, symbol: str, calls: str, y: Any = None, reflected: bool = False) -> NoReturn:
        kind, first = self._as_operand()
        other = repr(y) if type(y) in (bool, int, float) else _Y
        x, y = (other, _X) if reflected else (_X, other)
        raise OperatorError(f"{symbol} is not defined for {kind}: {first}use {calls.format(x=x, y=y)}")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **options: Any) -> NoReturn:
        """Refuses a function of NumPy, which would leave the context."""
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        op = _FUNCTIONS.get(name, name if name in _SAME_NAMES else "")
        if not op:
            calls = "ctx.ops, which has no function of this name"
        else:
            calls = " or ".join(part if " " in part else f"ctx.ops.{part}" for part in _alternatives(op))
        kind, first = self._as_operand()
        raise OperatorError(
            f"np.{name} is not defined for {kind}: {first}use {calls}; or NumPy on data, x.numpy(), where "
            "ctx.isRecording is False"
        )


def _alternatives(op: str) -> list[str]:
    return [op] if op == "x itself" else op.split(" or ")


def _binary(symbol: str, calls: str, reflected: bool) -> Callable[[NoOperators, Any], NoReturn]:
    def refuse(self: NoOperators, other: Any, *_: Any) -> NoReturn:
        self._refuse(symbol, calls, other, reflected)

    return refuse


def _unary(symbol: str, calls: str) -> Callable[..., NoReturn]:
    def refuse(self: NoOperators, *_: Any) -> NoReturn:
        self._refuse(symbol, calls)

    return refuse


# Not as ``def`` in the class: a type checker that saw the methods would take ``x + y`` for an expression of no type.
for _name, (_symbol, _calls) in _BINARY.items():
    setattr(NoOperators, f"__{_name}__", _binary(_symbol, _calls, False))
    setattr(NoOperators, f"__r{_name}__", _binary(_symbol, _calls, True))
for _name, (_symbol, _calls) in _COMPARISONS.items():
    setattr(NoOperators, f"__{_name}__", _binary(_symbol, _calls, False))
for _name, (_symbol, _calls) in _UNARY.items():
    setattr(NoOperators, f"__{_name}__", _unary(_symbol, _calls))


class MissingAttribute:
    """Attribute of other libraries' arrays, on a class that lacks it: its lookup raises the error that names the op.

    The class does not use ``__getattr__``, which would slow down the lookup of every attribute of its objects.

    Args:
        name: name of the attribute.
        advice: the op or the attribute in its place.
    """

    def __init__(self, name: str, advice: str) -> None:
        self._name, self._advice = name, advice

    def __get__(self, value: NoOperators | None, owner: type) -> NoReturn:
        if value is None:
            raise AttributeError(f"type object {owner.__name__!r} has no attribute {self._name!r}")
        raise UnknownNameError(f".{self._name} is not an attribute of {value._as_operand()[0]}: use {self._advice}")
