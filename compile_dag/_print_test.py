import os
import subprocess
import sys

import numpy as np
import pytest

from compile_dag import GraphExecutionContext, record
from lang_core import ExecutionContext, Module, Parameter, Tensor, TensorSpec

X = TensorSpec((2, 3), "f32")


class Scale(Module):
    def __init__(self) -> None:
        self.weight = Parameter((3,), "bf16")

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        return ctx.ops.mul(x, ctx.ops.cast(ctx.parameter(self.weight), "f32"))


class Model(Module):
    def __init__(self) -> None:
        self.layers = [Scale(), Scale()]

    def forward(self, ctx: ExecutionContext, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        for layer in self.layers:
            x = layer(ctx, x)
        values, order = ctx.ops.sort(x, 1)
        frozen = ctx.ops.constant(np.array([-0.0, np.nan, np.inf], np.float32))
        large = ctx.ops.constant(np.zeros((3, 3), np.int8))
        return {"sum": ctx.ops.add(values, frozen), "order": order, "large": large, "a name": y}


MODEL_TEXT = """\
graph model(%x: f32[2,3], %y: i32[]) {
  # layers.0
  %2: bf16[3] = parameter(path='layers.0.weight', spec=bf16[3])
  %3: f32[3] = cast(%2, dtype=f32)
  %4: f32[2,3] = mul(%x, %3)
  # layers.1
  %5: bf16[3] = parameter(path='layers.1.weight', spec=bf16[3])
  %6: f32[3] = cast(%5, dtype=f32)
  %7: f32[2,3] = mul(%4, %6)
  # the root
  %8: f32[2,3], %9: i32[2,3] = sort(%7, axis=1, descending=False)
  %10: f32[3] = constant(value=[-0.0, nan, inf])
  %11: i8[3,3] = constant(value=<9 values>)
  %12: f32[2,3] = add(%8, %10)
  return sum=%12, order=%9, large=%11, "a name"=%y
}
"""


def model_graph() -> str:
    return str(record(Model(), X, TensorSpec((), "i32"), input_names=["x", "y"], name="model"))


def test_the_text_of_a_model() -> None:
    assert model_graph() == MODEL_TEXT


def looping(ctx: ExecutionContext, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    def small(v: Tensor) -> Tensor:
        return ctx.ops.all(ctx.ops.less(v, y))

    def body(v: Tensor) -> tuple[Tensor]:
        return ctx.ops.while_loop(small, lambda w: (ctx.ops.add(w, v),), (x,))  # pyright: ignore[reportReturnType]

    (grown,) = ctx.ops.while_loop(small, body, (x,))
    return ctx.ops.cond(ctx.ops.all(ctx.ops.less(x, y)), lambda: (grown,), lambda: (x,))


LOOP_TEXT = """\
graph looping(%x: f32[2,3], %y: f32[]) {
  %2: f32[2,3] = while(%x, %y, %x, carried=1)
    graph cond(%3: f32[2,3]) {
      %4: bool[2,3] = less(%3, %y)
      %5: bool[] = all(%4, axes=(0, 1), keepdims=False)
      return cond_result_0=%5
    }
    graph body(%6: f32[2,3]) {
      %7: f32[2,3] = while(%x, %y, %6, carried=1)
        graph cond(%8: f32[2,3]) {
          %9: bool[2,3] = less(%8, %y)
          %10: bool[] = all(%9, axes=(0, 1), keepdims=False)
          return cond_result_0=%10
        }
        graph body(%11: f32[2,3]) {
          %12: f32[2,3] = add(%11, %6)
          return body_result_0=%12
        }
      return body_result_0=%7
    }
  %13: bool[2,3] = less(%x, %y)
  %14: bool[] = all(%13, axes=(0, 1), keepdims=False)
  %15: f32[2,3] = cond(%14, %2, %x)
    graph on_true() {
      return on_true_result_0=%2
    }
    graph on_false() {
      return on_false_result_0=%x
    }
  return result0=%15
}
"""


def test_every_value_of_the_text_has_a_name_of_its_own_however_regions_nest() -> None:
    assert str(record(looping, X, TensorSpec((), "f32"))) == LOOP_TEXT


def test_a_region_alone_names_what_it_captures() -> None:
    graph = record(looping, X, TensorSpec((), "f32"))
    assert str(graph.nodes[0].attribute("cond")) == (
        "graph cond(%cond_0: f32[2,3]) {\n"
        "  %2: bool[2,3] = less(%cond_0, %outer0)\n"
        "  %3: bool[] = all(%2, axes=(0, 1), keepdims=False)\n"
        "  return cond_result_0=%3\n"
        "}\n"
    )


@pytest.mark.parametrize("name", ["1", "a b", "", "x=%1", "größe"])
def test_a_name_that_could_be_misread_is_quoted(name: str) -> None:
    text = str(record(lambda ctx, x: {name: ctx.ops.exp(x)}, X, input_names=[name], name="f"))
    assert text == f'graph f(%"{name}": f32[2,3]) {{\n  %1: f32[2,3] = exp(%"{name}")\n  return "{name}"=%1\n}}\n'


def test_a_graph_of_nothing() -> None:
    with GraphExecutionContext().recording() as tape:
        pass
    assert str(tape.to_compute_graph({})) == "graph main() {\n  return\n}\n"


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_the_text_is_the_same_in_every_process(seed: str) -> None:
    program = "from compile_dag import _print_test as t; print(t.model_graph(), end='')"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert process.stdout == MODEL_TEXT
