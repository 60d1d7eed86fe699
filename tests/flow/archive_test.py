"""Weights that stages load by key or synthesise go the way of all weights: text, archive, device."""

import gc
from pathlib import Path

import numpy as np

from compile_dag import Value
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import MappingWeights
from run_iree import Session, compile_module
from run_iree.archive import ArchiveEntry, write_archive
from tests.flow._support import eager, inputs_of, lowered, recorded
from transformer_core import RMSNorm
from transformer_core.flow import Block, BuildContext, CompileProfile, FlowContext, FlowModel, FlowValue, ModelFlow


class Folded(Block):
    """``x W^T W / 8``: both orientations of a matrix that is stored once."""

    def __init__(self, build: BuildContext) -> None:
        self.norm = RMSNorm(6, dtype=build.dtype)

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        (x,) = values
        key = f"{flow.module_path}.w"
        axes = ((1,), (0,))
        low = flow.emit("dot_general", flow.run(self.norm, x), flow.load_param(key, True, shape=(6, 3)), contract=axes)
        high = flow.emit("dot_general", low, flow.load_param(key), contract=axes, spec=x.spec)
        return flow.emit("add", x, flow.emit("mul", high, 0.125))


def _ramp(flow: FlowContext, x: FlowValue) -> FlowValue:
    return flow.emit("add", x, flow.synth_param("ramp", np.linspace(-1, 1, 6, dtype=np.float32)))


def _model() -> FlowModel:
    random = np.random.default_rng(8)
    stored = {f"layers.{i}.w": random.standard_normal((3, 6)).astype(np.float32) for i in range(3)}
    stored |= {f"layers.{i}.norm.weight": 1 + random.standard_normal(6).astype(np.float32) / 8 for i in range(3)}
    recipe = ModelFlow("m").input("x", ("T", 6)).custom("positions", _ramp).repeat_layers(3, Folded)
    return recipe.build(CompileProfile.preset("encoder", sequence=4), MappingWeights(stored))


def test_loads_in_layers_leave_the_layers_alike() -> None:
    point = _model().entry_point()
    text = lowered([point])
    assert lowered([point], streaming=True) == text
    assert text.count("func.func private") == 1
    assert text.count("call @block.layers.N(") == 3
    assert text.count("util.global.load") == 7  # a norm and a matrix per layer, and the ramp
    assert _model().audit().used[-1] == "layers.2.w"


def test_a_device_finds_them_in_the_archive(tmp_path: Path) -> None:
    model = _model()
    point = model.entry_point()
    with open(tmp_path / "module.mlir", "w", encoding="utf-8") as file:
        module = lower_module([point], file.write, ExternalParameters(), streaming=True)
    names = module.parameters()
    assert set(names) == {path for path, _ in model.named_parameters()}
    entries = [ArchiveEntry(path, path, spec) for path, spec in names.items()]
    write_archive(tmp_path / "weights.irpa", entries, model.weights)
    compile_module(tmp_path / "module.mlir", tmp_path / "module.vmfb", target="llvm-cpu")
    inputs = inputs_of(point)
    expected = eager(point, model.weights, inputs)["output"]
    with Session(tmp_path / "module.vmfb", "local-task", parameters=tmp_path / "weights.irpa") as session:
        (result,) = session.function("forward")(*inputs)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(recorded(point, model.weights, inputs)["output"], expected, rtol=1e-5, atol=1e-5)


class Weighed(Block):
    """Adds an input that no recipe mentions, times a synthesised weight of the layer, below zeros."""

    def __init__(self, build: BuildContext) -> None:
        self.factor = build.index + 1.0

    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
        (x,) = values
        turn = flow.synth_param("turn", np.eye(6) * self.factor, shape=(6, 6))
        shift = flow.emit("add", flow.input("shift", (1, 6)), flow.synth_zeros("zeros", (6,)))
        return flow.emit("add", x, flow.emit("dot_general", shift, turn, contract=((1,), (0,))), spec=x.spec)


def test_a_model_without_weights_exports_what_it_synthesises_and_the_inputs_of_its_blocks(tmp_path: Path) -> None:
    recipe = ModelFlow("m").input("x", ("T", 6)).repeat_layers(3, Weighed)
    model = recipe.build(CompileProfile.preset("encoder", sequence=4))
    point = model.entry_point()
    assert [argument.name for argument in point.arguments] == ["x", "shift"]
    text = lowered([point])
    assert lowered([point], streaming=True) == text
    (tmp_path / "module.mlir").write_text(text, encoding="utf-8")
    entries = [ArchiveEntry(path, path, parameter.spec) for path, parameter in model.named_parameters()]
    assert [entry.name for entry in entries] == [f"layers.{i}.{name}" for i in range(3) for name in ("turn", "zeros")]
    write_archive(tmp_path / "weights.irpa", entries, model.weights)
    compile_module(tmp_path / "module.mlir", tmp_path / "module.vmfb", target="llvm-cpu")
    x, shift = inputs_of(point)
    with Session(tmp_path / "module.vmfb", "local-task", parameters=tmp_path / "weights.irpa") as session:
        (result,) = session.function("forward")(x, shift)
        np.testing.assert_allclose(result.numpy(), x + 6 * shift, rtol=1e-5, atol=1e-6)


def test_nothing_of_a_layer_lives_on() -> None:
    """Reachable values do not grow over forty layers that load by key."""
    alive: list[int] = []

    class Counted(Folded):
        def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue:
            gc.collect()  # values in cycles are garbage already
            alive.append(sum(isinstance(entry, Value) for entry in gc.get_objects()))
            return super().run(flow, *values)

    matrix, norm = np.ones((3, 6), np.float32), np.ones(6, np.float32)
    stored = {f"layers.{i}.{name}": array for i in range(40) for name, array in (("w", matrix), ("norm.weight", norm))}
    recipe = ModelFlow("m").input("x", ("T", 6)).repeat_layers(40, Counted)
    point = recipe.build(CompileProfile.preset("encoder", sequence=4), MappingWeights(stored)).entry_point()
    alive.clear()  # those of the run on specs, which looks for inputs
    gc.collect()
    gc.freeze()  # the collections below look at what the lowering makes alone
    try:
        lowered([point], streaming=True)
    finally:
        gc.unfreeze()
    assert len(alive) == 40
    assert max(alive[30:]) <= max(alive[5:15]) + 2
