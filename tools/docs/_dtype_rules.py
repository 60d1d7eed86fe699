"""Dtypes of each op's results: in words, and as a function that a test holds every case of every op to."""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, NamedTuple

from lang_core import DType, bool_, f32, i8, i32, promote

Dtypes = tuple[DType | None, ...]


class DtypeRule(NamedTuple):
    """Rule for the dtypes of an op's results.

    Attributes:
        words: rule as a person reads it.
        dtypes: function of the operands' dtypes and the attributes by name; gives the dtype of each result.
    """

    words: str
    dtypes: Callable[[Dtypes, Mapping[str, Any]], Dtypes]


def _promoted(operands: Dtypes) -> DType | None:
    return reduce(lambda a, b: promote(a, b) if a and b else None, operands)


_COMMON: Final = DtypeRule(
    "the operands' common dtype, by numpy.result_type", lambda operands, attributes: (_promoted(operands),)
)
_SAME: Final = DtypeRule("the dtype of the first operand", lambda operands, attributes: operands[:1])
_BOOL: Final = DtypeRule("bool", lambda operands, attributes: (bool_,))
_INDEX: Final = DtypeRule("i32", lambda operands, attributes: (i32,))
_ASKED: Final = DtypeRule("the attribute dtype", lambda operands, attributes: (attributes["dtype"],))

_RULES: Final[Mapping[DtypeRule, str]] = {
    _COMMON: "add sub mul div rem quotient pow maximum minimum bitwise_and bitwise_or bitwise_xor shift_left "
    "shift_right_logical clamp",
    _BOOL: "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not "
    "any all",
    _SAME: "cached_attention packed_cached_attention negate abs sign exp expm1 log log1p tanh logistic erf sqrt rsqrt "
    "sin cos floor ceil round conv sum prod max min cumsum broadcast reshape transpose concat slice pad reverse "
    "dynamic_slice dynamic_update_slice take gather scatter put",
    _INDEX: "argmax argmin",
    _ASKED: "cast dot_general iota block_product packed_linear expert_block_product packed_expert_linear dequantize",
    DtypeRule("the common dtype of on_true and on_false", lambda operands, _: (_promoted(operands[1:]),)): "select",
    DtypeRule("x's dtype; i32", lambda operands, _: (operands[0], i32)): "sort",
    DtypeRule("i8; f32; i32", lambda operands, _: (i8, f32, i32)): "block_quantize",
    DtypeRule("i8", lambda operands, _: (i8,)): "quantize",
    DtypeRule("the value's dtype", lambda _, attributes: (attributes["value"].spec.dtype,)): "constant",
    DtypeRule(
        "the dtypes of the carried operands", lambda operands, attributes: operands[: attributes["carried"]]
    ): "while",
    DtypeRule(
        "the dtypes of the branches' results, which are alike",
        lambda _, attributes: tuple(spec.dtype for spec in attributes["on_true"].result_specs),
    ): "cond",
}
DTYPE_RULES: Final = {name: rule for rule, names in _RULES.items() for name in names.split()}
