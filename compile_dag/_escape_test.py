import inspect
import operator
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compile_dag import GraphExecutionContext, Value
from lang_core import EagerExecutionContext, ExecutionContext, Module, OperatorError, OpError, Tensor, TraceEscapeError

ARRAY = np.ones((2, 3), np.float32)


def branched(x: Tensor) -> str:
    if x:
        return "true"
    return "false"


# What asks a value for data, and how the message calls it.
ESCAPES: dict[str, tuple[Callable[[Any], object], str]] = {
    "numpy": (lambda x: x.numpy(), "numpy()"),
    "asarray": (np.asarray, "numpy()"),
    "asarray of a dtype": (lambda x: np.asarray(x, np.float64), "numpy()"),
    "array": (np.array, "numpy()"),
    "array of a list": (lambda x: np.array([x, x]), "numpy()"),
    "float": (float, "float()"),
    "int": (int, "int()"),
    "bool": (bool, "bool()"),
    "if": (branched, "bool()"),
    "not": (operator.not_, "bool()"),
    "and": (lambda x: x and 1, "bool()"),
    "index": (operator.index, "an index"),
    "subscript of a list": (lambda x: [1, 2][x], "an index"),
    "range": (range, "an index"),
    "np.where": (lambda x: np.where(x, 1, 2), "numpy()"),
}
ANSWERS = {
    "bool()": " (select, cond, while_loop)",
    "float()": " (cast)",
    "int()": " (cast)",
    "an index": " (take, dynamic_slice, fori_loop)",
}


class Inner(Module):
    """Makes the value that is then misused."""

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        return ctx.ops.tanh(x)


class Model(Module):
    def __init__(self) -> None:
        self.layers = [Inner()]


@pytest.mark.parametrize("shape", [(), (1, 1), (2, 3)])
@pytest.mark.parametrize("name", ESCAPES)
def test_asking_a_recorded_value_for_data(name: str, shape: tuple[int, ...]) -> None:
    ask, asked = ESCAPES[name]
    ctx = GraphExecutionContext()
    with ctx.recording():
        x = Model().layers[0](ctx, ctx.ops.placeholder("x", shape, "f32"))
        with pytest.raises(TraceEscapeError) as caught:
            ask(x)
    line = Inner.forward.__code__.co_firstlineno + 1
    assert str(caught.value) == (
        f"{asked} was asked of {x.spec!r}, the recorded result of tanh (at layers.0, {__file__}:{line}): a recorded "
        f"value has no data. Compute with ctx.ops{ANSWERS.get(asked, '')}, or ask ctx.isRecording before a path "
        "that needs data"
    )


def test_an_input_says_where_it_was_made() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording():
        x, line = ctx.ops.placeholder("x", (2, 3), "f32"), this_line()
        with pytest.raises(
            TraceEscapeError, match=f"result of placeholder \\(at the root, {re.escape(__file__)}:{line}"
        ):
            x.numpy()


def this_line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


# Data that was computed outside of the tape, and how the message calls it.
OUTSIDE: dict[str, tuple[object, str]] = {
    "array": (ARRAY, "an array of float32[2, 3], computed outside the recording"),
    "array of no dimension": (np.array(2.0), "an array of float64[], computed outside the recording"),
    "float32 scalar": (np.float32(2), "an array of float32[], computed outside the recording"),
    "float64 scalar": (np.float64(2), "an array of float64[], computed outside the recording"),
    "bfloat16 scalar": (ml_dtypes.bfloat16(2), "an array of bfloat16[], computed outside the recording"),
    "eager tensor": (EagerExecutionContext().ops.ones((2, 3), "f32"), "a tensor with data, f32[2,3]"),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", OUTSIDE)
def test_data_from_outside_does_not_enter_unseen(name: str, swapped: bool) -> None:
    data, called = OUTSIDE[name]

    class Adds(Module):
        def forward(self, ctx: ExecutionContext, x: Any, y: Any) -> Tensor:
            return ctx.ops.add(x, y)

    class Root(Module):
        def __init__(self) -> None:
            self.adds = Adds()

    ctx = GraphExecutionContext()
    line = Adds.forward.__code__.co_firstlineno + 1
    with ctx.recording() as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        operands = (data, x) if swapped else (x, data)
        where = re.escape(f"add (at adds, {__file__}:{line}): {called}")
        with pytest.raises(
            TraceEscapeError, match=f"^{where}.* reached a recorded op: .*freeze it with ctx.ops.constant"
        ):
            Root().adds(ctx, *operands)
    assert tape.nodes == []


@pytest.mark.parametrize("name", OUTSIDE)
def test_data_from_outside_is_frozen_on_demand(name: str) -> None:
    data, _ = OUTSIDE[name]
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        ctx.ops.equal(ctx.ops.cast(x, "f64"), ctx.ops.cast(ctx.ops.constant(data), "f64"))
    frozen = tape.nodes[1].attribute("value").array
    wanted = data.numpy() if isinstance(data, Tensor) else np.asarray(data)
    assert (frozen.dtype, frozen.tobytes()) == (wanted.dtype, wanted.tobytes())


def test_a_frozen_array_is_a_copy() -> None:
    ctx = GraphExecutionContext()
    array = np.array([1.0, 2.0], np.float32)
    with ctx.recording() as tape:
        ctx.ops.constant(array)
    array[0] = 7
    assert tape.nodes[0].attribute("value").array.tolist() == [1.0, 2.0]


def test_a_recorded_value_cannot_be_frozen() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording():
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        with pytest.raises(TraceEscapeError, match=r"numpy.. was asked of"):
            ctx.ops.constant(x)
        with pytest.raises(TraceEscapeError, match=r"numpy.. was asked of"):
            ctx.ops.constant([x, x])


def test_python_numbers_are_constants() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        ctx.ops.mul(ctx.ops.placeholder("x", (2, 3), "bf16"), 0.5)
    assert [node.op.name for node in tape.nodes] == ["constant", "mul"]
    assert tape.nodes[0].results[0].spec.dtype.name == "bf16"


def test_an_eager_context_takes_no_recorded_value() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording():
        x = ctx.ops.placeholder("x", (2, 3), "f32")
    with pytest.raises(OpError, match=r"found Value\(f32\[2,3\] of placeholder"):
        EagerExecutionContext().ops.exp(x)


def test_what_is_no_question_for_data() -> None:
    ctx = GraphExecutionContext()
    with ctx.recording():
        x = ctx.ops.placeholder("x", (2, 3), "f32")
        y = ctx.ops.placeholder("y", (2, 3), "f32")
    assert isinstance(x, Value)
    assert (x.shape, x.dtype.name, x.ndim, len({x, y, x})) == ((2, 3), "f32", 2, 2)
    with pytest.raises(OpError, match=r"== between tensors \(f32\[2,3\]\) is an op: use ctx.ops.equal"):
        _ = x == y
    with pytest.raises(OpError, match="== between tensors"):
        _ = x != 1
    with pytest.raises(OpError, match=r"a tensor \(f32\[2,3\]\) is no Python sequence: use ctx.ops.split"):
        list(x)
    with pytest.raises(OperatorError, match=r"has no len\(\): use x.shape\[0\]"):
        len(x)  # pyright: ignore[reportArgumentType]
