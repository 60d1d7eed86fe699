"""Block functions that stay functions: the same results, caches in place, one compilation of the block."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from run_iree.compiler import _compile
from run_iree.compiler._block_calls import OutlineRule
from run_iree.compiler._compile import CompileReport, compile_module
from run_iree.compiler._outline import outline
from run_iree.compiler._targets import DATA_TILING, Target, target_named
from run_iree.sessions import Session

_LAYERS = 3
_CACHE = "tensor<1x5x3xf32>"

_BLOCK = """  func.func private @block.layers.N(%value0: tensor<2x3xf32>, %value1: tensor<1x5x3xf32>, \
%value2: tensor<i32>, %parameter0: tensor<3x3xf32>) -> (tensor<1x5x3xf32>, tensor<2x3xf32>) {
    %0 = stablehlo.dot_general %value0, %parameter0, contracting_dims = [1] x [1] : (tensor<2x3xf32>, tensor<3x3xf32>) \
-> tensor<2x3xf32>
    %1 = stablehlo.reshape %0 : (tensor<2x3xf32>) -> tensor<1x2x3xf32>
    %2 = stablehlo.constant dense<0> : tensor<i32>
    %3 = stablehlo.dynamic_update_slice %value1, %1, %2, %value2, %2 : (tensor<1x5x3xf32>, tensor<1x2x3xf32>, \
tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x5x3xf32>
    %4 = stablehlo.constant dense<0.0> : tensor<f32>
    %5 = stablehlo.reduce(%3 init: %4) applies stablehlo.add across dimensions = [0, 1] : \
(tensor<1x5x3xf32>, tensor<f32>) -> tensor<3xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %7 = stablehlo.add %value0, %6 : tensor<2x3xf32>
    %8 = stablehlo.optimization_barrier %7 : tensor<2x3xf32>
    return %3, %8 : tensor<1x5x3xf32>, tensor<2x3xf32>
  }
"""


def _module(result: str = "", block: str = _BLOCK) -> str:
    """Returns three layers, each with a weight and a cache; ``result`` takes the place of what is returned."""
    weight = "stablehlo.constant dense<[[1.0, 2.0, 0.5], [0.0, 1.0, 3.0], [2.0, 0.25, 1.0]]> : tensor<3x3xf32>"
    caches = ", ".join(f"%{i}: {_CACHE} {{tf.aliasing_output = {i + 1} : i32}}" for i in range(_LAYERS))
    kinds = ", ".join(["tensor<2x3xf32>", *[_CACHE] * _LAYERS])
    lines = [f"  func.func public @step(%x: tensor<2x3xf32>, %p: i32, {caches}) -> ({kinds}) {{"]
    lines += ['    %10 = "tensor.from_elements"(%p) : (i32) -> tensor<i32>', f"    %11 = {weight}"]
    x = "%x"
    for i in range(_LAYERS):
        types = f"(tensor<2x3xf32>, {_CACHE}, tensor<i32>, tensor<3x3xf32>) -> ({_CACHE}, tensor<2x3xf32>)"
        lines.append(f"    %{20 + i}:2 = call @block.layers.N({x}, %{i}, %10, %11) : {types}")
        x = f"%{20 + i}#1"
    lines.append(f"    return {result or x}, {', '.join(f'%{20 + i}#0' for i in range(_LAYERS))} : {kinds}")
    return "module @m {\n" + "\n".join(lines) + "\n  }\n" + block + "}\n"


_SCATTER = """    %30 = stablehlo.reshape %value1 : (tensor<1x5x3xf32>) -> tensor<5x3xf32>
    %31 = "stablehlo.scatter"(%30, %value2, %0) <{indices_are_sorted = false, unique_indices = true, \
scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], \
scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%32: tensor<f32>, %33: tensor<f32>):
    stablehlo.return %33 : tensor<f32>
    }) : (tensor<5x3xf32>, tensor<2x1xi32>, tensor<2x3xf32>) -> tensor<5x3xf32>
    %3 = stablehlo.reshape %31 : (tensor<5x3xf32>) -> tensor<1x5x3xf32>
"""


def _scattering() -> str:
    """Returns the module with places of rows [2, 1] in place of one position, and a scatter at these."""
    update = _BLOCK[_BLOCK.index("    %3 = ") : _BLOCK.index("    %4 = ")]
    text = _module(block=_BLOCK.replace(update, _SCATTER)).replace("tensor<i32>", "tensor<2x1xi32>")
    number = text[text.index("    %10 = ") : text.index("    %11 = ")]
    places = """    %12 = "tensor.from_elements"(%p) : (i32) -> tensor<i32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [] : (tensor<i32>) -> tensor<2x1xi32>
    %14 = stablehlo.iota dim = 0 : tensor<2x1xi32>
    %10 = stablehlo.add %13, %14 : tensor<2x1xi32>
"""
    return text.replace(number, places).replace("%2 = stablehlo.constant dense<0> : tensor<2x1xi32>\n", "")


def _target(rule: OutlineRule | None, flags: tuple[str, ...] = ()) -> Target:
    target = target_named("llvm-cpu")
    return dataclasses.replace(target, flags=(*target.flags, *flags), matvec_tiles=None, outline=rule)


def _compiled(folder: Path, rule: OutlineRule | None, text: str | None = None) -> tuple[CompileReport, Path]:
    source, output = folder / "m.mlir", folder / f"{'inlined' if rule is None else 'outlined'}.vmfb"
    source.write_text(_module() if text is None else text)
    return compile_module(source, output, _target(rule)), output


def _run(executable: Path) -> list[list[np.ndarray]]:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    steps = []
    with Session(executable, "local-sync") as session:
        step = session.function("step")
        caches = [np.full((1, 5, 3), i, np.float32) for i in range(_LAYERS)]
        for position in (0, 3, 1):
            result, *caches = step(x, position, *caches)
            steps.append([np.array(value.numpy()) for value in (result, *caches)])
        assert session.counters.bytes_guarded == 0
    return steps


def test_functions_that_stay_compute_the_same_bits(tmp_path: Path) -> None:
    inlined, plain = _compiled(tmp_path, None)
    outlined, other = _compiled(tmp_path, OutlineRule(2, 0))
    assert set(outlined.schedules) == {"step"}
    assert outlined.schedules["step"].submissions >= _LAYERS
    assert outlined.schedules["step"].copies <= inlined.schedules["step"].copies
    for mine, theirs in zip(_run(other), _run(plain), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_blocks_that_scatter_stay_functions(tmp_path: Path) -> None:
    """Whole numbers that are no starts of slices are not read by the host."""
    rule = OutlineRule(2, 0)
    inlined, plain = _compiled(tmp_path, None, _scattering())
    outlined, other = _compiled(tmp_path, rule, _scattering())
    assert outlined.schedules["step"].submissions > inlined.schedules["step"].submissions
    assert outlined.schedules["step"].copies <= inlined.schedules["step"].copies
    for mine, theirs in zip(_run(other), _run(plain), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    functions = outline(_scattering().splitlines(keepends=True), rule)
    assert functions is not None
    text = "".join(functions.lines(_scattering().splitlines(keepends=True)))
    assert "    %31 = func.call @block.layers.N.scatter31(%30, %value2, %0) : " in text
    assert text.count("attributes {no_inline}") == 1


def test_the_text_keeps_what_it_declares(tmp_path: Path) -> None:
    lines = _module().splitlines(keepends=True)
    functions = outline(lines, OutlineRule(_LAYERS, 36))
    assert functions is not None
    assert functions.calls == {"step": {"block.layers.N": _LAYERS}}
    text = "".join(functions.lines(lines))
    assert text.count("hal.tensor.import consume") == text.count("hal.tensor.alias") == 1
    assert "%0: !hal.buffer_view, %1: !hal.buffer_view" in text
    assert "tensor<1x5x3xf32> {iree.abi.output = 1 : index}" in text
    assert "    %21 = util.call @block.layers.N(%20, %1, %p, %11) : " in text
    assert "optimization_barrier %7" not in text  # the function's end is one
    assert "    return %22, %0, %1, %2 : tensor<2x3xf32>, !hal.buffer_view" in text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (_module(), OutlineRule(_LAYERS + 1, 0)),
        (_module().replace("optimization_barrier %7 :", "negate %7 :"), OutlineRule(_LAYERS, 37)),
        (_module(result="%x").replace("block.layers.N(%x, %0,", "block.layers.N(%x, %1,"), OutlineRule(1, 0)),
        (_module().replace("return %22#1, %20#0, %21#0", "return %22#1, %21#0, %20#0"), OutlineRule(1, 0)),
        (_module().replace("%value0: tensor<2x3xf32>", "%value0: tensor<2x3xi32>", 1), OutlineRule(1, 0)),
        (_module().replace("    %0 = stablehlo.dot", "    %z = call @block.layers.N() : () -> ()\n    %0 = s"),
         OutlineRule(1, 0)),
    ],
    ids=["few calls", "small weights", "two uses of a cache", "another result", "whole numbers", "a nested call"],
)  # fmt: skip
def test_functions_that_are_inlined(text: str, rule: OutlineRule) -> None:
    assert outline(text.splitlines(keepends=True), rule) is None


def test_data_tiling_lays_out_weights_outside_of_calls() -> None:
    target = _target(OutlineRule(1, 0))
    assert target.outline_beside(()) == OutlineRule(1, 0)
    assert target.outline_beside((DATA_TILING,)) is None


def test_what_does_not_compile_as_functions_is_inlined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that refuses the form, or runs a block in several submissions, costs time and nothing else."""
    texts: list[str] = []
    run = _compile._run

    def noted(command: list[str], folder: Path) -> tuple[int, int, str]:
        text = (folder / "m.mlir").read_text()
        texts.append(text)
        return run([*command, "--no-such-flag"] if "util.call" in text else command, folder)

    monkeypatch.setattr(_compile, "_run", noted)
    report, output = _compiled(tmp_path, OutlineRule(2, 0))
    assert ["util.call" in text for text in texts] == [True, True, False]  # with the checks of the compiler, too
    assert report.schedules == _compiled(tmp_path, None)[0].schedules
    assert len(_run(output)) == 3


def test_errors_are_those_of_the_text_itself(tmp_path: Path) -> None:
    text = _module(block=_BLOCK.replace("stablehlo.add %value0", "stablehlo.nonsense %value0"))
    with pytest.raises(_compile.CompileError, match=r"m\.mlir:\d+.*|nonsense"):
        _compiled(tmp_path, OutlineRule(2, 0), text)
