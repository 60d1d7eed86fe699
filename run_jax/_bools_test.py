"""Bools whose bytes are not 0 or 1 are True at the doors of JAX's engines."""

from typing import Any

import numpy as np

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, TensorSpec
from run_jax import JaxExecutionContext, StableHloFunction

_MASK = np.array([0, 1, 2, 255], np.uint8).view(bool)


def test_a_function_of_a_module() -> None:
    lines: list[str] = []

    def main(ctx: Any, m: Any) -> dict[str, Any]:
        return {"number": ctx.ops.cast(m, "i32"), "not": ctx.ops.logical_xor(m, ctx.ops.constant(np.ones(4, bool)))}

    point = EntryPoint("main", main, (Argument("m", TensorSpec((4,), "bool")),))
    lower_module([point], lines.append, ExternalParameters())
    number, other = StableHloFunction("".join(lines), "main")(_MASK)
    assert number.tolist() == [0, 1, 1, 1]
    assert other.view(np.uint8).tolist() == [1, 0, 0, 0]


def test_the_context() -> None:
    ctx = JaxExecutionContext(inputs={"m": _MASK})
    for mask in (_MASK, ctx.constant(_MASK), ctx.placeholder("m", TensorSpec((4,), "bool"))):
        assert ctx.ops.cast(mask, "i32").numpy().tolist() == [0, 1, 1, 1]
        wanted = ctx.ops.logical_not(mask)
        assert wanted.numpy().view(np.uint8).tolist() == [1, 0, 0, 0]


def test_a_function_beside_main() -> None:
    lines: list[str] = []
    arguments = (Argument("x", TensorSpec((2,), "f32")),)
    points = [
        EntryPoint("main", lambda ctx, x: {"y": ctx.ops.negate(x)}, arguments),
        EntryPoint("f", lambda ctx, x: {"y": ctx.ops.add(x, x)}, arguments),
    ]
    lower_module(points, lines.append, ExternalParameters())
    x = np.array([1, 2], np.float32)
    assert StableHloFunction("".join(lines), "f")(x)[0].tolist() == [2, 4]
    assert StableHloFunction("".join(lines), "main")(x)[0].tolist() == [-1, -2]
