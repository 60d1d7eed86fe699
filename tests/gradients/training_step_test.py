"""A training step as one entry point: streamed, in blocks, and on devices."""

import io
from pathlib import Path

import numpy as np
import pytest

from compile_dag import record
from compile_hlo import LoweredModule, lower_module, record_entry_point
from compile_hlo.emit import ExternalParameters
from lang_core import EagerExecutionContext, EntryPoint, Tensor
from run_iree import target_named
from tapeline.finetuning.step import open_step, training_step
from tests.gradients import _tiny
from transformer_core.training import AdamW


def step_of(layers: int = 3) -> EntryPoint:
    return training_step(_tiny.model(num_hidden_layers=layers), _tiny.BATCH, _tiny.SEQUENCE)


def lowered(point: EntryPoint, streaming: bool, block_functions: bool = True) -> tuple[str, LoweredModule]:
    out = io.StringIO()
    module = lower_module(
        [point], out.write, ExternalParameters(), streaming=streaming, block_functions=block_functions
    )
    return out.getvalue(), module


@pytest.mark.parametrize("block_functions", [True, False])
def test_streamed_text_is_buffered_text(block_functions: bool) -> None:
    buffered, streamed = (lowered(step_of(), streaming, block_functions) for streaming in (False, True))
    assert buffered == streamed


def test_alike_backward_blocks_are_one_function() -> None:
    _, module = lowered(step_of(layers=5), streaming=True)
    layers = {kernel.name: kernel.call_sites for kernel in module.kernels if "layers" in kernel.name}
    assert layers == {
        "block.model.layers.N": 5,
        "block.model.layers.N.backward": 5,
        "block.model.layers.N.update": 5,
    }


def test_scores_of_attention_are_no_value_that_crosses_blocks() -> None:
    """Checks that the backward block takes inputs and results of composites from the forward one, none of [T, S]."""
    graph = record_entry_point(step_of())
    made_in = {id(value): node.block for node in graph.nodes for value in node.results}
    crossing = {
        value.shape
        for node in graph.nodes
        if node.block.endswith(".backward")
        for value in node.inputs
        if made_in.get(id(value), "").startswith("model.layers") and not made_in[id(value)].endswith(".backward")
    }
    assert crossing
    assert not [shape for shape in crossing if shape[-2:] == (_tiny.SEQUENCE, _tiny.SEQUENCE)]


def state_of(arrays: _tiny.Arrays) -> list[np.ndarray]:
    return [*arrays.values(), *[np.zeros(a.shape, np.float32) for _ in range(2) for a in arrays.values()]]


def test_an_eager_step_is_adamw_of_jax_gradients() -> None:
    made = _tiny.model()
    arrays, ids = _tiny.weights(made), _tiny.token_ids()
    loss, slopes = _tiny.jax_value_and_gradients(arrays, ids)
    norm = np.sqrt(sum(float((slope**2).sum()) for slope in slopes.values()))
    ctx = EagerExecutionContext()
    results = step_of()(
        ctx, ctx.constant(ids), ctx.constant(0.01), ctx.constant(1), *map(ctx.constant, state_of(arrays))
    )
    assert float(results["loss"]) == pytest.approx(loss, rel=1e-5)
    adamw = AdamW()
    for path, slope in slopes.items():
        slope = slope * min(1.0, 1 / norm)
        decay = adamw.weight_decay if slope.ndim > 1 else 0.0
        wanted = arrays[path] - 0.01 * (slope / (np.abs(slope) + adamw.eps) + decay * arrays[path])
        clear = np.abs(slope) > 1e-5 * np.abs(slope).max()  # the sign of what is nearly 0 is rounding
        np.testing.assert_allclose(results[path].numpy()[clear], wanted[clear], atol=2e-5, err_msg=path)


def test_steps_on_a_device_are_eager_steps(tmp_path: Path) -> None:
    """Three steps; parameters and moments are donated and nothing is copied to guard one."""
    ctx = EagerExecutionContext()
    point, ids = step_of(), _tiny.token_ids()
    state = state_of(_tiny.weights(_tiny.model()))
    eager = [ctx.constant(array) for array in state]
    wanted: dict[str, Tensor] = {}
    losses: list[tuple[float, float]] = []
    with open_step(point, tmp_path, target_named("llvm-cpu"), "local-task") as session:
        step_on_device = session.function("train")
        device = [session.upload(array) for array in state]
        for step in (1, 2, 3):
            loss, *device = step_on_device(ids, 0.02, step, *device)
            wanted = dict(point(ctx, ctx.constant(ids), ctx.constant(0.02), ctx.constant(step), *eager))
            eager = list(wanted.values())[1:]
            losses.append((float(loss.numpy()), float(wanted["loss"])))
        assert session.counters.bytes_guarded == 0
        assert losses[2][0] < losses[0][0]
        np.testing.assert_allclose(*np.array(losses).T, rtol=1e-5)
        for (name, mine), theirs in zip(list(wanted.items())[1:], device, strict=True):
            np.testing.assert_allclose(theirs.numpy(), mine.numpy(), atol=2e-4, err_msg=name)


def test_recording_a_step_twice_gives_one_text() -> None:
    point = step_of()
    specs = [argument.spec for argument in point.arguments]
    names = [argument.name for argument in point.arguments]
    one, other = (str(record(point.fn, *specs, input_names=names, name="train")) for _ in range(2))
    assert one == other
