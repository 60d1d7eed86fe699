"""Golden texts: an attention block, and a loop with a branch and captures."""

from pathlib import Path
from typing import Any

import pytest

from compile_dag import ComputeGraph, record
from compile_hlo.emit import ExternalParameters
from lang_core import Module, Parameter, TensorSpec
from tests.emission._support import parsed, text_of

_GOLDENS = Path(__file__).parent / "data"


class _Attention(Module):
    def __init__(self) -> None:
        self.query = Parameter((4, 6), "bf16")
        self.output = Parameter((6, 4), "bf16")

    def forward(self, ctx: Any, x: Any, k: Any, v: Any) -> Any:
        """x: [1, 3, 6]; k, v: [1, 1, 5, 2]: two query heads share one key head."""
        ops = ctx.ops
        q = ops.transpose(ops.reshape(ops.linear(x, ctx.parameter(self.query)), (1, 3, 2, 2)), (0, 2, 1, 3))
        mask = ops.less_equal(ops.iota((3, 5), 1), ops.iota((3, 5), 0))
        mixed = ops.reshape(ops.transpose(ops.attention(q, k, v, mask), (0, 2, 1, 3)), (1, 3, 4))
        return {"y": ops.add(x, ops.linear(mixed, ctx.parameter(self.output)))}


def _attention() -> ComputeGraph:
    cache = TensorSpec((1, 1, 5, 2), "bf16")
    return record(_Attention().forward, TensorSpec((1, 3, 6), "bf16"), cache, cache, name="attention")


def _loop(ctx: Any, x: Any, stop: Any) -> Any:
    ops = ctx.ops
    half = ops.constant(0.5)

    def body(i: Any, y: Any) -> Any:
        y = ops.cond(ops.less(i, 2), lambda: (ops.add(y, x),), lambda: (ops.mul(y, half),))[0]
        return ops.add(i, 1), y

    i, y = ops.while_loop(lambda i, y: ops.less(i, stop), body, (ops.constant(0, "i32"), x))
    return {"count": i, "y": y}


def _loop_graph() -> ComputeGraph:
    return record(_loop, TensorSpec((2, 3), "f32"), TensorSpec((), "i32"), name="loop")


@pytest.mark.parametrize(("name", "make"), [("attention", _attention), ("loop", _loop_graph)])
def test_text_is_the_golden_one(name: str, make: Any):
    text = text_of([make()], ExternalParameters())
    parsed(text, allow_unregistered=True)
    golden = _GOLDENS / f"{name}.mlir"
    assert text == golden.read_text(), f"if the new text is right, make it {golden.name}"
