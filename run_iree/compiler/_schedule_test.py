"""Schedules of modules whose dispatches are known."""

import doctest
import itertools
from pathlib import Path

import pytest

from run_iree.compiler import Schedule, _schedule, compile_module

# Products are not fused with one another: every one is a dispatch.
_MODULE = """\
module @m {{
  func.func public @one(%x: tensor<3x5xf32>, %w: tensor<5x7xf32>) -> tensor<3x7xf32> {{
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<3x5xf32>, tensor<5x7xf32>) -> tensor<3x7xf32>
    return %0 : tensor<3x7xf32>
  }}
  func.func public @several(%x: tensor<5x5xf32>) -> tensor<5x5xf32> {{
{body}
    return %{last} : tensor<5x5xf32>
  }}
  func.func public @nothing(%x: tensor<3xf32>) -> tensor<3xf32> {{
    return %x : tensor<3xf32>
  }}
}}
"""
_PRODUCT = (
    "    %{} = stablehlo.dot_general %{}, %{}, contracting_dims = [1] x [0] "
    ": (tensor<5x5xf32>, tensor<5x5xf32>) -> tensor<5x5xf32>"
)


def _text(products: int) -> str:
    names = ["x", *map(str, range(products))]
    body = [_PRODUCT.format(new, old, old) for old, new in itertools.pairwise(names)]
    return _MODULE.format(body="\n".join(body), last=names[-1])


@pytest.mark.parametrize("products", [1, 4])
def test_dispatches_are_counted_per_entry_point(products: int, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(_text(products))
    schedules = compile_module(tmp_path / "m.mlir", tmp_path / "m.vmfb", "llvm-cpu").schedules
    assert set(schedules) <= {"one", "several", "nothing"}
    assert schedules["one"] == Schedule(submissions=1, dispatches=1)
    assert schedules["several"] == Schedule(submissions=1, dispatches=products)
    assert schedules.get("nothing", Schedule()).dispatches == 0


def test_a_barrier_parts_the_work_in_two(tmp_path: Path) -> None:
    """The host waits in between."""
    text = _text(2).replace("%1 = ", "%k = stablehlo.optimization_barrier %0 : tensor<5x5xf32>\n    %1 = ")
    (tmp_path / "m.mlir").write_text(text.replace("dot_general %0, %0", "dot_general %k, %k"))
    schedules = compile_module(tmp_path / "m.mlir", tmp_path / "m.vmfb", "llvm-cpu").schedules
    assert schedules["several"] == Schedule(submissions=2, dispatches=2)


def test_doctests() -> None:
    assert doctest.testmod(_schedule).failed == 0
