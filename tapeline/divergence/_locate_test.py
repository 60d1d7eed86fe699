"""A fault in one place of a lowering is named by that place."""

import importlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from compile_dag import Node
from compile_hlo.emit import RULES, Emitter
from lang_core import Argument, EntryPoint, MappingWeights, Module, Parameter, TensorSpec
from run_iree.archive import ArchiveEntry, write_archive
from tapeline.compare import Comparison
from tapeline.divergence import DeviceRunner, EagerReference, InterpreterRunner, Runner, RunnerReference, locate
from tapeline.divergence import _locate as implementation

_SPEC = TensorSpec((2, 3), "f32")
_LAYERS = 3
_TOOLS: Final = importlib.import_module("compile_hlo.portable._stablehlo")


class _Layer(Module):
    def __init__(self) -> None:
        self.weight = Parameter((3,))

    def forward(self, ctx: Any, x: Any, scale: Any) -> Any:
        x = ctx.ops.mul(ctx.ops.tanh(x), ctx.parameter(self.weight))
        return ctx.tag(ctx.ops.add(ctx.ops.mul(x, scale), x), "output")


class _Model(Module):
    def __init__(self) -> None:
        self.layers = [_Layer() for _ in range(_LAYERS)]

    def forward(self, ctx: Any, x: Any, cache: Any) -> dict[str, Any]:
        scale = ctx.ops.exp(ctx.ops.cos(cache))  # used by every layer, and tagged nowhere
        for i, layer in enumerate(self.layers):
            with ctx.block(f"layers.{i}"):
                x = layer(ctx, x, scale)
        return {"y": ctx.tag(ctx.ops.negate(x), "y"), "cache": ctx.ops.add(cache, x)}


def _weights(other: int | None = None) -> MappingWeights:
    """One for all, or another for one layer."""
    row = np.array([0.5, 1.5, -2.0], np.float32)
    return MappingWeights({f"layers.{i}.weight": row * np.float32(2 if i == other else 1) for i in range(_LAYERS)})


def _point() -> EntryPoint:
    return EntryPoint("f", _Model(), (Argument("x", _SPEC), Argument("cache", _SPEC, alias_result="cache")))


def _located(runner: Runner, reference: Any = None) -> Comparison:
    random = np.random.default_rng(0)
    inputs = {name: random.standard_normal(_SPEC.shape).astype(np.float32) for name in ("x", "cache")}
    return locate(_point(), inputs, runner, reference or EagerReference(_point(), _weights()), 1e-4, step=4)


@pytest.fixture(params=["local-sync", "interpreter"])
def runner(request: pytest.FixtureRequest) -> Runner:
    return InterpreterRunner(_weights()) if request.param == "interpreter" else DeviceRunner(request.param, _weights())


@pytest.fixture(autouse=True)
def interpreted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs StableHLO's interpreter in this process: a child is nearly all imports."""
    monkeypatch.setattr("compile_hlo.portable._child._in_child", lambda name, *args: getattr(_TOOLS, name)(*args))


def _break(monkeypatch: pytest.MonkeyPatch, op: str, path: str) -> None:
    """Emission of one op in one module gives the operand."""
    whole = RULES[op]

    def broken(e: Emitter, node: Node) -> None:
        if node.path == path:
            e.alias(node, e.name(node.inputs[0]))
        else:
            whole(e, node)

    monkeypatch.setitem(RULES, op, broken)


def test_what_is_right_agrees(runner: Runner) -> None:
    comparison = _located(runner)
    assert (comparison.first, comparison.divergence()) == (None, "")
    assert [tensor.label.name for tensor in comparison.tensors] == [
        *(f"layers.{i}.output" for i in range(_LAYERS)),
        "y",
    ]


def test_a_broken_op_of_one_block_is_named(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, "tanh", "layers.1")
    comparison = _located(runner)
    first = comparison.first
    assert first is not None
    assert (first.block, first.label.op, first.label.module_path, first.label.step) == (
        "layers.1",
        "tanh",
        "layers.1",
        4,
    )
    assert first.label.line is not None
    file, _, line = first.label.line.rpartition(":")
    assert file.endswith("_locate_test.py")
    assert "tanh" in Path(__file__).read_text().splitlines()[int(line) - 1]
    said = comparison.divergence()
    assert said.startswith("first divergence: op tanh, block layers.1, module layers.1, ")
    states = [(tensor.label.name, tensor.state) for tensor in comparison.tensors]
    assert states[0] == ("layers.0.output", "agrees")
    assert states[-2:] == [("layers.2.output", "differs"), ("y", "differs")]


def test_what_no_block_holds_is_named_too(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch, "cos", "")
    said = _located(runner).divergence()
    assert said.startswith("first divergence: op cos, block (none), module at the root, ")


def test_a_wrong_weight_is_named(tmp_path: Path) -> None:
    archives = [tmp_path / "right.irpa", tmp_path / "wrong.irpa"]
    entries = [ArchiveEntry(key, key, TensorSpec((3,), "f32")) for key in _weights().keys()]  # noqa: SIM118
    for path, weights in zip(archives, (_weights(), _weights(other=2)), strict=True):
        write_archive(path, entries, weights)
    comparison = _located(DeviceRunner("local-sync", archives[1]), EagerReference(_point(), _weights()))
    assert comparison.first is not None
    assert comparison.first.label.name == "layers.2.parameter"
    other = RunnerReference(_point(), DeviceRunner("local-task", archives[0]))
    between = _located(DeviceRunner("local-sync", archives[1]), other)
    assert between.first is not None
    assert between.first.label.name == "layers.2.parameter"
    assert between.reference == "local-task"


def test_many_values_take_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    class Counting(DeviceRunner):
        def run(self, graph: Any, arguments: Any, inputs: Any) -> Any:
            runs.append(len(graph.outputs) - 2)
            return super().run(graph, arguments, inputs)

    _break(monkeypatch, "tanh", "layers.1")
    monkeypatch.setattr(implementation, "_BATCH_BYTES", 2 * _SPEC.nbytes)
    comparison = _located(Counting("local-sync", _weights()))
    assert comparison.first is not None
    assert comparison.first.label.op == "tanh"
    assert runs[:2] == [2, 2]  # the four tags
    assert all(1 <= count <= 3 for count in runs[2:])
