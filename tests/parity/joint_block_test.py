"""Blocks of several streams against torch's; as stages of a flow, streamed, and on a device."""

from pathlib import Path

import numpy as np
import pytest

from compile_dag import evaluate, record
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import ConfigError, EagerExecutionContext, MappingWeights, OpError
from run_iree import Session, compile_module
from run_iree.archive import ArchiveEntry, write_archive
from tests.goldens.joint_block import BATCH, CASES, joint_block_weights, read_joint_block_golden
from transformer_core import JointBlock, LayerNorm
from transformer_core.flow import CompileProfile, ModelFlow

_ALL = pytest.mark.parametrize("name", CASES)


def _block(name: str) -> JointBlock:
    sizes = CASES[name]
    return JointBlock(
        sizes.size,
        sizes.heads,
        sizes.inner,
        sizes.condition,
        streams=tuple(sizes.lengths),
        ends=sizes.ends,
        qk_norm_eps=sizes.qk_norm_eps,
    )


@_ALL
def test_streams(name: str) -> None:
    golden, weights, block = read_joint_block_golden(name), joint_block_weights(CASES[name]), _block(name)
    assert {path: p.spec.shape for path, p in block.named_parameters()} == {k: w.shape for k, w in weights.items()}
    ctx = EagerExecutionContext(MappingWeights(weights))
    values = [ctx.constant(array) for array in (*golden.x.values(), golden.condition)]
    actual = block(ctx, *values)
    for stream, tensor in zip(golden.y, actual, strict=True):
        expected = golden.y[stream]
        np.testing.assert_allclose(tensor.numpy(), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        assert np.array_equal(expected, golden.x[stream]) == (stream in CASES[name].ends)
    names = [*golden.x, "condition"]
    graph = record(block, *[value.spec for value in values], input_names=names)
    results = evaluate(graph, ctx, dict(zip(names, values, strict=True)))
    for tensor, expected in zip(results.values(), actual, strict=True):
        assert tensor.numpy().tobytes() == expected.numpy().tobytes()


def test_stages_of_a_flow_on_a_device(tmp_path: Path) -> None:
    """Blocks that are alike, and a last one that reads the text and gives the picture alone."""
    sizes = CASES["two_last"]
    names = tuple(sizes.lengths)

    def block(*ends: str) -> JointBlock:
        return JointBlock(sizes.size, sizes.heads, sizes.inner, sizes.condition, streams=names, ends=ends)

    recipe = ModelFlow("dit").input("condition", (BATCH, sizes.condition)).keep("condition")
    for stream, length in sizes.lengths.items():
        recipe = recipe.input(stream, (BATCH, length, sizes.size)).store_stream(stream)
    lanes = {"streams": names, "reads": ("condition",)}
    recipe = recipe.repeat_layers(3, lambda build: block(), name="blocks", **lanes)
    recipe = recipe.stage("last", lambda build: block("txt"), **lanes).load_stream("img")
    recipe = recipe.stage("norm", lambda build: LayerNorm(sizes.size)).result("velocity")
    model = recipe.build(CompileProfile.preset("encoder", sequence=1))

    point, random = model.entry_point(), np.random.default_rng(0)
    inputs = [random.standard_normal(argument.spec.shape).astype(np.float32) for argument in point.arguments]
    weights = MappingWeights(
        {
            path: (random.standard_normal(parameter.spec.shape) / parameter.spec.shape[-1] ** 0.5).astype(np.float32)
            for path, parameter in model.named_parameters()
        }
    )
    texts: list[str] = []
    for streaming in (True, False):
        pieces: list[str] = []
        module = lower_module([point], pieces.append, ExternalParameters(), streaming=streaming)
        texts.append("".join(pieces))
    assert texts[0] == texts[1]
    assert texts[0].count("call @block.blocks.N(") == 3
    (tmp_path / "module.mlir").write_text(texts[0])
    entries = [ArchiveEntry(path, path, spec) for path, spec in module.parameters().items()]
    write_archive(tmp_path / "weights.irpa", entries, weights)
    compile_module(tmp_path / "module.mlir", tmp_path / "module.vmfb", target="llvm-cpu")
    ctx = EagerExecutionContext(weights)
    expected = point(ctx, *map(ctx.constant, inputs))["velocity"].numpy()
    with Session(tmp_path / "module.vmfb", "local-task", parameters=tmp_path / "weights.irpa") as session:
        (actual,) = session.function("forward")(*inputs)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match="joint block: 3 heads do not divide the model size 20"):
        JointBlock(20, 3, 9, 5)
    with pytest.raises(ConfigError, match="the streams img, img: 'img' is not a valid name, or taken"):
        JointBlock(20, 4, 9, 5, streams=("img", "img"))
    with pytest.raises(ConfigError, match="'forward' is not a valid name, or taken"):
        JointBlock(20, 4, 9, 5, streams=("forward",))
    with pytest.raises(ConfigError, match="the streams are img, txt; 'text' cannot end"):
        JointBlock(20, 4, 9, 5, ends=("text",))
    ctx = EagerExecutionContext()
    with pytest.raises(OpError, match=r"joint block at '': expected img, txt and the condition; found 2 values"):
        JointBlock(20, 4, 9, 5)(ctx, ctx.ops.zeros((1, 2, 20), "f32"), ctx.ops.zeros((1, 5), "f32"))
