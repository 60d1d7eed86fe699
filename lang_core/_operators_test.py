"""Operators of Python and functions of NumPy on tensors, parameters: one error that names the op."""

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lang_core import EagerExecutionContext, EagerTensor, OperatorError, OpError, Ops, Parameter, UnknownNameError
from lang_core._operators import _FUNCTIONS, _SAME_NAMES, ARRAY_ATTRIBUTES

CTX = EagerExecutionContext()
ARRAY = np.arange(4, dtype=np.float32).reshape(2, 2)

# Operators of x and y by the op that the error names.
BINARY: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "add": (operator.add, "add"),
    "sub": (operator.sub, "sub"),
    "mul": (operator.mul, "mul"),
    "truediv": (operator.truediv, "div"),
    "floordiv": (operator.floordiv, "quotient"),
    "mod": (operator.mod, "rem"),
    "divmod": (divmod, "rem"),
    "pow": (operator.pow, "pow"),
    "matmul": (operator.matmul, "dot_general"),
    "and": (operator.and_, "bitwise_and"),
    "or": (operator.or_, "bitwise_or"),
    "xor": (operator.xor, "bitwise_xor"),
    "lshift": (operator.lshift, "shift_left"),
    "rshift": (operator.rshift, "shift_right_logical"),
    "lt": (operator.lt, "less"),
    "le": (operator.le, "less_equal"),
    "gt": (operator.gt, "greater"),
    "ge": (operator.ge, "greater_equal"),
    "iadd": (operator.iadd, "add"),
    "imul": (operator.imul, "mul"),
}
# Python asks the right operand of ``2 < x`` for ``x > 2``.
SWAPPED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
UNARY: dict[str, tuple[Callable[[Any], object], str]] = {
    "neg": (operator.neg, "ctx.ops.negate"),
    "pos": (operator.pos, "x itself"),
    "abs": (abs, "ctx.ops.abs"),
    "invert": (operator.invert, "ctx.ops.logical_not"),
    "round": (round, "ctx.ops.round"),
    "round to digits": (lambda x: round(x, 2), "ctx.ops.round"),
    "floor": (math.floor, "ctx.ops.floor"),
    "ceil": (math.ceil, "ctx.ops.ceil"),
    "trunc": (math.trunc, "ctx.ops.cast"),
    "subscript": (lambda x: x[0], "ctx.ops.slice"),
    "slice": (lambda x: x[..., 1:], "ctx.ops.slice"),
    "store": (lambda x: operator.setitem(x, 0, 1), "ctx.ops.put"),
    "delete": (lambda x: operator.delitem(x, 0), "ctx.ops.slice"),
    "contains": (lambda x: 3 in x, "ctx.ops.any"),
    "three-argument pow": (lambda x: pow(x, 2, 3), "ctx.ops.pow"),
    "np.tanh": (np.tanh, "ctx.ops.tanh"),
    "np.sum": (np.sum, "ctx.ops.sum"),
    "np.max": (np.max, "ctx.ops.max"),
    "np.prod": (np.prod, "ctx.ops.prod"),
    "np.cumsum": (np.add.accumulate, "ctx.ops.cumsum"),
    "np.any": (np.any, "ctx.ops.any"),
    "np.absolute": (np.absolute, "ctx.ops.abs"),
    "np.sinh": (np.sinh, "no function of this name"),
    "np.modf": (np.modf, "no function of this name"),
}
TENSORS_ONLY: dict[str, tuple[Callable[[Any], object], str]] = {
    "len": (len, "x.shape"),
    "iter": (list, "ctx.ops.split"),
    "unpack": (lambda x: [*x], "ctx.ops.split"),
    "equal": (lambda x: x == 1, "ctx.ops.equal"),
    "not equal": (lambda x: x != 1, "ctx.ops.equal"),
}
PARTNERS: dict[str, Any] = {
    "int": 2,
    "float": 0.5,
    "bool": True,
    "array": ARRAY,
    "scalar": np.float32(2),
    "f64 scalar": np.float64(2),
    "int scalar": np.int64(2),
    "list": [1.0, 2.0],
    "None": None,
}


def _tensor() -> Any:
    return CTX.constant(ARRAY)


SUBJECTS: dict[str, Callable[[], Any]] = {"eager tensor": _tensor, "parameter": lambda: Parameter((2, 2))}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_binary_operators(name: str, subject: str) -> None:
    function, op = BINARY[name]
    x = SUBJECTS[subject]()
    assert hasattr(Ops, op)
    for partner in (*PARTNERS.values(), x):
        mirrored = [] if isinstance(partner, list) and name in ("iadd", "imul") else [(partner, x)]
        for pair in ((x, partner), *mirrored):
            with pytest.raises(OperatorError, match=rf"\bctx\.ops\.({op}|{SWAPPED.get(op, op)})\b"):
                function(*pair)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_unary_operators(name: str, subject: str) -> None:
    function, advice = UNARY[name]
    with pytest.raises(OperatorError, match=re.escape(advice)):
        function(SUBJECTS[subject]())


@pytest.mark.parametrize("name", TENSORS_ONLY)
def test_what_only_tensors_refuse(name: str) -> None:
    function, advice = TENSORS_ONLY[name]
    with pytest.raises(OperatorError, match=re.escape(advice)):
        function(_tensor())


def test_the_message_has_the_call_to_write() -> None:
    with pytest.raises(OperatorError) as caught:
        _ = 0.5 * _tensor()
    assert str(caught.value) == "* is not defined for a tensor (f32[2,2]): use ctx.ops.mul(0.5, x)"
    with pytest.raises(OperatorError, match=r"use ctx.ops.sub\(x, 1\)"):
        _ = _tensor() - 1
    with pytest.raises(
        OperatorError, match=r"^\* is not defined for Parameter\('', f32\[2\]\): read it, x = ctx.param"
    ):
        _ = 0.5 * Parameter((2,))  # pyright: ignore[reportOperatorIssue]


@pytest.mark.parametrize("ufunc", [value for value in vars(np).values() if isinstance(value, np.ufunc)], ids=str)
def test_every_function_of_numpy_is_refused(ufunc: np.ufunc) -> None:
    """Each of NumPy's ufuncs, with the tensor in each place, and with one as the place of the result."""
    for place in range(ufunc.nin):
        operands: list[Any] = [ARRAY] * ufunc.nin
        operands[place] = _tensor()
        with pytest.raises(OperatorError, match=rf"^np\.{ufunc.__name__} is not defined for a tensor"):
            ufunc(*operands)
    with pytest.raises(OperatorError):
        ufunc(*[ARRAY] * ufunc.nin, out=(_tensor(),) * ufunc.nout)


def test_ops_in_messages_are_ops() -> None:
    texts = [*_FUNCTIONS.values(), *_SAME_NAMES]
    named = {part for text in texts for part in text.split(" or ") if " " not in part}
    named |= {op for text in ARRAY_ATTRIBUTES.values() for op in re.findall(r"ctx\.ops\.(\w+)", text)}
    assert not [name for name in named if not hasattr(Ops, name)]
    assert all(isinstance(getattr(np, name.partition(".")[0]), np.ufunc) for name in {*_FUNCTIONS, *_SAME_NAMES})


def test_attributes_of_other_arrays_name_the_op() -> None:
    x = _tensor()
    for name, advice in ARRAY_ATTRIBUTES.items():
        assert not hasattr(x, name)
        with pytest.raises(UnknownNameError, match=re.escape(f".{name} is not an attribute of a tensor (f32[2,2])")):
            getattr(x, name)
        with pytest.raises(AttributeError, match=re.escape(advice)):
            getattr(x, name)
    with pytest.raises(AttributeError, match="'EagerTensor' object has no attribute 'foo'"):
        _ = x.foo


def test_names_of_other_arrays_attributes_are_not_listed() -> None:
    x = _tensor()
    assert not {*ARRAY_ATTRIBUTES} & {*dir(x)}
    assert {"spec", "shape", "dtype", "numpy", "data"} <= {*dir(x)}
    assert not hasattr(type(x), "T")


def test_a_subclass_may_have_an_attribute_of_such_a_name() -> None:
    class Named(EagerTensor):
        size = 3

    assert Named(_tensor().spec, ARRAY).size == 3


def test_a_parameter_has_no_data() -> None:
    for ask in (np.asarray, np.array, lambda p: np.array([p, p]), lambda p: np.concatenate([p, p])):
        with pytest.raises(OperatorError, match=r"has no data: read it with ctx\.parameter"):
            ask(Parameter((2,)))


def test_what_stays() -> None:
    x, p = _tensor(), Parameter((2,))
    assert np.asarray(x).tolist() == ARRAY.tolist()
    assert np.allclose(x, ARRAY)
    np.testing.assert_array_equal(x, ARRAY)
    assert float(CTX.constant(0.5)) == 0.5
    assert bool(p)
    assert p != Parameter((2,))
    assert len({p, x, p}) == 2
    assert x in [x]
    assert issubclass(OperatorError, OpError)
    assert issubclass(OperatorError, TypeError)
