"""Long sums are exact to 1e-5, relative to the result, whatever adds one number after the other.

Engines that need no device run in the tests of local-task alone. vmvx and Vulkan on a CPU run the shorter sums; with
TAPELINE_LONG=1 in the environment Vulkan runs all.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import pytest

from compile_dag import ComputeGraph, record
from compile_hlo.quirks import FAULTS, overrides_of
from lang_core import EagerExecutionContext, TensorSpec
from lang_core.ops import LONG_SUM
from run_iree import Session
from run_iree._device_testing import compiled, device_params
from run_jax import StableHloFunction, jax_function
from tests.emission._support import text_of

Array = np.ndarray[Any, Any]
Call = Callable[[Any, Any], Any]

_BIG: Final = 2_000_000
_TOLERANCE: Final = 1e-5
_TENTH: Final = float(np.float32(0.1))
_SHORTER: Final[dict[str, tuple[str, ...]]] = {"vmvx": ("sum_of_odd_rows", "product_of_rows")}
if not os.environ.get("TAPELINE_LONG"):
    _SHORTER["vulkan"] = ("sum_of_axes", "sum_of_odd_rows", "product_of_rows", "cumsum")
# Name, function, shape of 0.1s, right result.
_SUMS: Final[tuple[tuple[str, Call, tuple[int, ...], float], ...]] = (
    ("sum", lambda o, x: o.sum(x, 0), (_BIG,), _BIG * _TENTH),
    ("sum_of_axes", lambda o, x: o.sum(x), (1000, 500), 500_000 * _TENTH),
    ("sum_down", lambda o, x: o.sum(x, 0), (200_000, 3), 200_000 * _TENTH),
    ("sum_of_odd_rows", lambda o, x: o.sum(x, 1, keepdims=True), (3, 300_007), 300_007 * _TENTH),
    ("mean", lambda o, x: o.mean(x, 0), (_BIG,), _TENTH),
    ("norm", lambda o, x: o.sum(o.rms_norm(x, None, 0.0), 0), (_BIG,), _BIG),
    ("softmax", lambda o, x: o.max(o.softmax(x, 0), 0), (_BIG,), 1 / _BIG),
    ("log_softmax", lambda o, x: o.max(o.log_softmax(x, 0), 0), (_BIG,), -float(np.log(_BIG))),
    ("product", lambda o, x: o.dot_general(x, x, ((0,), (0,))), (_BIG,), _BIG * _TENTH**2),
    ("product_of_columns", lambda o, x: o.dot_general(x, x, ((0,), (0,))), (200_000, 3), 200_000 * _TENTH**2),
    ("product_of_rows", lambda o, x: o.dot_general(x, x, ((1,), (1,))), (2, 100_003), 100_003 * _TENTH**2),
    ("product_of_axes", lambda o, x: o.dot_general(x, x, ((1, 2), (1, 2))), (2, 500, 400), 200_000 * _TENTH**2),
    (
        "product_of_a_batch",
        lambda o, x: o.dot_general(x, x, ((1,), (1,)), ((0,), (0,))),
        (2, 100_000, 2),
        100_000 * _TENTH**2,
    ),
    ("cumsum", lambda o, x: o.max(o.cumsum(x, 0), 0), (300_000,), 300_000 * _TENTH),
)


def _tenths(shape: tuple[int, ...]) -> Array:
    return np.full(shape, 0.1, np.float32)


def _graph(name: str, call: Call, shape: tuple[int, ...]) -> ComputeGraph:
    return record(lambda ctx, x: call(ctx.ops, x), TensorSpec(shape, "f32"), input_names=["x"], name=name)


def _wrong(name: str, result: Array, right: float) -> list[str]:
    error = float(np.max(np.abs(result.astype(np.float64) - right))) / abs(right)
    return [f"{name}: off by {error:.1e} of {right}"] if error > _TOLERANCE else []


_ONCE = pytest.mark.skipif(
    os.environ.get("TAPELINE_DEVICE", "local-task") != "local-task", reason="needs no device: runs with local-task"
)


@_ONCE
def test_eagerly() -> None:
    ops: Any = EagerExecutionContext().ops
    wrong: list[str] = []
    for name, call, shape, right in _SUMS:
        wrong += _wrong(name, call(ops, _tenths(shape)).numpy(), right)
    assert not wrong


@_ONCE
def test_in_the_jax_context() -> None:
    wrong: list[str] = []
    for name, call, shape, right in _SUMS:
        run = jax.jit(jax_function(lambda ctx, x, call=call: call(ctx.ops, x)))
        wrong += _wrong(name, np.asarray(run({}, _tenths(shape))), right)
    assert not wrong


@_ONCE
def test_on_xla() -> None:
    wrong: list[str] = []
    for name, call, shape, right in _SUMS:
        text = text_of([_graph(name, call, shape)])
        wrong += _wrong(name, StableHloFunction(text, name)(_tenths(shape))[0], right)
    assert not wrong


@pytest.mark.parametrize("device", device_params(shared=True))
def test_on_devices(device: str, tmp_path: Path) -> None:
    shorter = _SHORTER.get(device)
    sums = [entry for entry in _SUMS if shorter is None or entry[0] in shorter]
    output = compiled(text_of(_graph(*entry[:3]) for entry in sums), device, tmp_path)
    wrong: list[str] = []
    with Session(output, device) as session:
        for name, _, shape, right in sums:
            wrong += _wrong(name, session.function(name)(_tenths(shape))[0].numpy(), right)
    assert not wrong


@pytest.mark.parametrize("name", ["long_sums", "long_products"])
@pytest.mark.parametrize("device", device_params(shared=True))
def test_the_faults_are_there_still(device: str, name: str, tmp_path: Path) -> None:
    """A fault that is gone is to leave compile_hlo/quirks."""
    if device == "vmvx":
        pytest.skip("two million numbers take vmvx too long one after the other")
    entry = next(entry for entry in _SUMS if entry[0] == ("sum" if name == "long_sums" else "product"))
    graph = _graph(*entry[:3])
    text = text_of([graph], overrides=overrides_of(fault for fault in FAULTS if fault.name != name))
    assert text != text_of([graph])
    with Session(compiled(text, device, tmp_path), device) as session:
        result = session.function(graph.name)(_tenths(entry[2]))[0].numpy()
    assert _wrong(graph.name, result, entry[3]), f"remove the fault {name}"


@pytest.mark.parametrize("size", [1, 4096, 53_248, LONG_SUM])
def test_sums_as_wide_as_models_are_written_as_they_were(size: int) -> None:
    without = overrides_of(fault for fault in FAULTS if fault.name not in ("long_sums", "long_products"))
    for call in (lambda o, x: o.sum(x, 1), lambda o, x: o.dot_general(x, x, ((1,), (1,)))):
        graph = _graph("f", call, (2, size))
        assert text_of([graph]) == text_of([graph], overrides=without)
