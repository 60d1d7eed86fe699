"""Arguments of a wrong type: only Tapeline's errors come out of ``ctx.ops``, in every context."""

import contextlib
import inspect
import os
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

from lang_core import ENCODINGS, OPS, EagerExecutionContext, OpError, Ops, TapelineError, Tensor
from lang_core.ops._arguments import _check_of

_EXAMPLES = 4000 if os.environ.get("TAPELINE_LONG") else 400
_CTX: Any = EagerExecutionContext()
_METHODS = {name: method for name, method in inspect.getmembers(Ops, inspect.isfunction) if not name.startswith("_")}
_WRONG: list[Any] = [
    None,
    True,
    1.0,
    1.5,
    "a",
    "f32",
    b"a",
    (),
    [],
    {},
    object(),
    (True,),
    (1.0,),
    [None],
    "12",
    (1, "a"),
]
_WRONG += [np.True_, np.float32(1), np.ones(2), float("nan"), {1}, ((1,),), lambda *_: None, int, 10**30, -(10**30)]
_WRONG += [np.array(1), np.array([1, 0]), range(2), ml_dtypes.bfloat16(1), np.int64(1), 0, 1, -1, (0,), (0, 1), [1, 0]]
_SHAPES: list[tuple[int, ...]] = [(), (2,), (2, 3), (1, 2, 3, 4), (2, 2, 3), (0,), (2, 32)]
_ITEMS: list[Callable[[], Any]] = [
    *[lambda shape=shape: _CTX.constant(np.ones(shape, np.float32)) for shape in _SHAPES],
    *[lambda shape=shape: _CTX.constant(np.zeros(shape, np.int32)) for shape in _SHAPES],
    lambda: _CTX.constant(np.ones((2, 3), np.bool_)),
    lambda: _CTX.constant(np.ones((3, 34), np.int8)),
    lambda: np.ones((2, 3), np.float32),
    lambda: ENCODINGS["q8_0"],
    lambda: lambda *values: values,
    lambda: [_CTX.constant(1.0)] * 3,
    lambda: "i32",
]


def _values(draw: Any) -> Any:
    return draw(st.one_of(st.sampled_from(_WRONG), st.sampled_from(_ITEMS).map(lambda make: make())))


@hypothesis.settings(max_examples=_EXAMPLES, deadline=None)
@hypothesis.given(st.sampled_from(sorted(_METHODS.keys() - {"while_loop", "cond", "fori_loop"})), st.data())
def test_only_typed_errors_come_out(name: str, data: Any) -> None:
    """Loops call what they are given, and are tried below."""
    parameters = list(inspect.signature(_METHODS[name]).parameters.values())[1:]
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    count = data.draw(st.integers(len(required), len(parameters)))
    arguments = [_values(data.draw) for _ in range(count)]
    try:
        result = getattr(_CTX.ops, name)(*arguments)
    except (TapelineError, MemoryError):  # of a shape that is right and enormous
        return
    for tensor in result if type(result) is tuple else (result,):
        assert isinstance(tensor, Tensor)
        assert tensor.numpy().shape == tensor.shape
        assert tensor.numpy().dtype == tensor.dtype.numpy


@hypothesis.settings(max_examples=_EXAMPLES, deadline=None)
@hypothesis.given(st.sampled_from(sorted(OPS.keys() - {"while", "cond"})), st.data())
def test_only_typed_errors_come_out_of_contracts(name: str, data: Any) -> None:
    op = OPS[name]
    specs = tuple(item().spec for item in data.draw(st.lists(st.sampled_from(_ITEMS[:14]), max_size=3)))
    attributes = tuple(_values(data.draw) for _ in op.attributes)
    with contextlib.suppress(OpError):
        op.infer_afresh(specs, attributes)


_X = np.ones((2, 3), np.float32)
_REFUSALS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "argmax": (lambda ops: ops.argmax(_CTX.constant(_X), None), "argmax: axis: expected an integer; found None"),
    "sum": (lambda ops: ops.sum(_CTX.constant(_X), True), "sum: axis: expected an integer, a sequence of integers, or"),
    "sum of ones": (lambda ops: ops.sum(_CTX.constant(_X), (1.0,)), "sum: axis: expected an integer, a sequence"),
    "by name": (lambda ops: ops.sum(_CTX.constant(_X), axis="0"), "sum: axis: expected an integer, a sequence of"),
    "reshape": (lambda ops: ops.reshape(_CTX.constant(_X), 6), "reshape: shape: expected a sequence of integers; f"),
    "text": (lambda ops: ops.reshape(_CTX.constant(_X), "32"), "reshape: shape: expected a sequence of integers"),
    "cast": (lambda ops: ops.cast(_CTX.constant(_X), 3), "cast: dtype: expected a dtype, such as 'f32'; found 3"),
    "scatter": (
        lambda ops: ops.scatter(_CTX.constant(_X), np.zeros((2, 3), np.int32), _CTX.constant(_X), 0, None),
        "scatter: reduction: expected a string; found None",
    ),
    "rms_norm": (lambda ops: ops.rms_norm(_CTX.constant(_X), None, "a"), "rms_norm: eps: expected a number; found 'a'"),
    "contract": (
        lambda ops: ops.dot_general(_CTX.constant(_X), _CTX.constant(_X), (1, 1)),
        "dot_general: contract: expected a sequence of 2, each a sequence of integers",
    ),
    "operand": (lambda ops: ops.sum(None), "sum: x: expected a tensor; found None"),
    "concat": (lambda ops: ops.concat([_CTX.constant(_X), "a"], 0), "concat: tensors: expected a sequence, each a te"),
    "dequantize": (lambda ops: ops.dequantize(_CTX.constant(_X), "q8_0"), "dequantize: encoding: expected an Encoding"),
    "loop": (
        lambda ops: ops.while_loop(1, lambda x: (x,), (_CTX.constant(_X),)),
        "while_loop: cond: expected a functi",
    ),
    "full": (lambda ops: ops.full((2,), "3", "f32"), "full: value: expected a number; found '3'"),
    "constant": (lambda ops: ops.constant(None, "f32"), "constant: None does not fit f32"),
}


@pytest.mark.parametrize("name", _REFUSALS)
def test_refusals_name_the_op_the_argument_and_what_was_found(name: str) -> None:
    call, message = _REFUSALS[name]
    for _ in range(2):  # a call before must not change what is remembered
        with pytest.raises(OpError) as error:
            call(_CTX.ops)
        assert str(error.value).startswith(message)
        _CTX.ops.sum(_CTX.constant(_X), 1)
        _CTX.ops.sum(_CTX.constant(_X), (1,))


def test_integers_of_numpy_are_integers() -> None:
    x = _CTX.constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    for axis in (1, np.int64(1), np.array(1), [1], np.array([1]), range(1, 2), -1):
        np.testing.assert_array_equal(_CTX.ops.sum(x, axis).numpy(), [3.0, 12.0])
    assert _CTX.ops.reshape(x, np.array([3, 2])).shape == (3, 2)
    assert all(type(dim) is int for dim in _CTX.ops.reshape(x, [np.int32(6)]).shape)
    assert _CTX.ops.slice_axis(x, 1, _CTX.constant(1), 3).shape == (2, 2)


def test_every_attribute_has_a_check() -> None:
    """A parameter with an annotation of another kind needs a check of its own."""
    unchecked = {
        f"{name}.{parameter.name}"
        for name, method in _METHODS.items()
        for parameter in list(inspect.signature(method).parameters.values())[1:]
        if _check_of(parameter.annotation) is None
    }
    flags = {f"{name}.keepdims" for name in _METHODS if "keepdims" in inspect.signature(_METHODS[name]).parameters}
    choices = {"packed_linear.activations", "packed_expert_linear.activations"}
    assert unchecked == flags | choices | {"sort.descending", "constant.value"}


def test_what_the_functions_of_a_loop_raise_comes_out_as_it_is() -> None:
    def body(x: Any) -> Any:
        raise TypeError("of the caller's own")

    with pytest.raises(TypeError, match="of the caller's own"):
        _CTX.ops.while_loop(lambda x: _CTX.constant(True), body, (_CTX.constant(1.0),))
