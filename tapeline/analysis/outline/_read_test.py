"""Outlines of modules that our own lowering writes."""

import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from compile_dag.testing import assert_linear
from lang_core import InputError
from tapeline.analysis.outline import Box, Edge, FunctionOutline, Item, Port, Repeat, boxes_of, read_outline
from tapeline.analysis.outline._bound import MAX_BOXES, MAX_FUNCTIONS
from tapeline.analysis.outline._models_testing import outline_of, write_module

_LEAVES = ("constant", "util.global.load")


def _operations(items: Sequence[Item]) -> int:
    return sum(
        sum(item.operations.values()) if isinstance(item, Box) else item.count * _operations(item.items)
        for item in items
    )


def _shape(items: Sequence[Item]) -> list[object]:
    return [item.path if isinstance(item, Box) else (item.count, _shape(item.items)) for item in items]


def _check(function: FunctionOutline) -> None:
    """Checks what holds for every function."""
    ids = [value.id for value in (*function.arguments, *function.results, *boxes_of(function.items))]
    assert len(ids) == len(set(ids))
    assert all(edge.source in ids and edge.target in ids for edge in function.edges)
    assert len(set(function.edges)) == len(function.edges)
    assert _operations(function.items) == function.operations


def test_alike_blocks_are_one_repetition(tmp_path: Path) -> None:
    outline = outline_of(tmp_path / "m", "aaaaa")
    forward, kernel = outline.functions
    assert [(function.name, function.kind, function.call_sites) for function in outline.functions] == [
        ("forward", "entry_point", 0),
        ("block.layers.N", "kernel", 5),
    ]
    assert forward.arguments == [Port(0, "x", "f32[2,3]"), Port(1, "layers.N.cache", "f32[2,3]", 5)]
    assert forward.results == [Port(2, "y", "f32[2,3]"), Port(3, "layers.N.cache", "f32[2,3]", 5)]
    assert _shape(forward.items) == ["", (5, ["layers.N"]), ""]
    repeat = forward.items[1]
    assert isinstance(repeat, Repeat)
    assert repeat.items == [
        Box(5, "layers.N", "block.layers.N", {"call": 1}, {"layers.N.weight": "f32[3]"}),
    ]
    assert set(forward.edges) == {
        Edge(0, 4, "f32[2,3]"),  # x into exponential
        Edge(4, 5, "f32[2,3]"),  # which feeds the first layer
        Edge(1, 5, "f32[2,3]"),  # as does its cache
        Edge(5, 5, "f32[2,3]", carried=True),  # and each layer the next
        Edge(5, 3, "f32[2,3]"),
        Edge(5, 10, "f32[2,3]"),  # the last one negate
        Edge(10, 2, "f32[2,3]"),
    }
    assert [port.name for port in kernel.arguments] == ["value", "layers.N.cache"]
    assert [dict(box.operations) for box in boxes_of(kernel.items)] == [
        {"broadcast_in_dim": 1, "multiply": 1},
        {"add": 1},
    ]
    assert [list(box.parameters) for box in boxes_of(kernel.items)] == [["layers.N.weight"], []]
    for function in outline.functions:
        _check(function)


def test_repeated_patterns_are_repetitions(tmp_path: Path) -> None:
    outline = outline_of(tmp_path / "m", "aab" * 4 + "aa")
    forward, *kernels = outline.functions
    assert _shape(forward.items) == ["", (4, [(2, ["layers.N"]), "layers.N.2"]), (2, ["layers.N"]), ""]
    assert [(kernel.name, kernel.call_sites) for kernel in kernels] == [("block.layers.N", 10), ("block.layers.N.2", 4)]
    for function in outline.functions:
        _check(function)


def test_regions_belong_to_their_op(tmp_path: Path) -> None:
    _, kernel = outline_of(tmp_path / "m", "b").functions
    (loop,) = [box for box in boxes_of(kernel.items) if "while" in box.operations]
    assert {"while": 1, "reduce": 1, "compare": 1}.items() <= loop.operations.items()
    results = [edge for edge in kernel.edges if edge.source == loop.id]
    assert results
    assert all(edge.type == "f32[2,3]" for edge in results)
    _check(kernel)


@pytest.mark.parametrize("inline", [False, True])
def test_flat_text_collapses_by_paths(tmp_path: Path, inline: bool) -> None:
    outline = outline_of(tmp_path / "m", "a" * 30, block_functions=False, inline=inline)
    (forward,) = outline.functions
    _check(forward)
    assert sum(1 for _ in boxes_of(forward.items)) < 8
    assert max(item.count for item in forward.items if isinstance(item, Repeat)) >= 29


def test_ops_are_those_of_the_text(tmp_path: Path) -> None:
    path = write_module(tmp_path / "m", "aabaab")
    result = read_outline(path, {})
    text = path.read_text()
    ops = re.findall(r'^    +(?:%\S+ = )?"?(?:stablehlo\.)?([a-z_.]+)', text, re.MULTILINE)
    ops = [op for op in ops if op not in (*_LEAVES, "return", "cond")]
    assert sum(function.operations for function in result.functions) == len(ops)
    assert [port.name for port in result.functions[0].arguments] == ["argument"]  # without the description: no names


def test_the_work_is_linear_and_the_outline_bounded(tmp_path: Path) -> None:
    def text(count: int, name: str) -> Path:
        """Ops of ever new modules, none like the one before."""
        lines = [f"    // part{i}\n    %{i + 1} = stablehlo.add %{i}, %{i} : tensor<2x3xf32>\n" for i in range(count)]
        head = "module @m {\n  func.func public @f(%0: tensor<2x3xf32>) -> (tensor<2x3xf32>) {\n"
        path = tmp_path / name
        path.write_text(f"{head}{''.join(lines)}    return %{count} : tensor<2x3xf32>\n  }}\n}}\n")
        return path

    few, many = text(2_000, "few"), text(20_000, "many")
    (forward,) = read_outline(many, {}).functions
    assert forward.operations == 20_000
    assert len(forward.items) <= MAX_BOXES
    assert len(forward.edges) <= MAX_BOXES + 1
    _check(forward)
    assert_linear(lambda: read_outline(few, {}), lambda: read_outline(many, {}))


def test_kernels_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    head, end = "(%value0: tensor<2xf32>) -> (tensor<2xf32>) {\n", "    return %value0 : tensor<2xf32>\n  }\n"
    kernels = "".join(f"  func.func private @k{i}{head}{end}" for i in range(MAX_FUNCTIONS + 5))
    (tmp_path / "m").write_text(f"module @m {{\n{kernels}}}\n")
    outline = read_outline(tmp_path / "m", {})
    assert (len(outline.functions), outline.omitted) == (MAX_FUNCTIONS, 5)
    assert outline.functions[0].edges == [Edge(0, 1, "f32[2]")]


def test_long_constants_are_not_held(tmp_path: Path) -> None:
    long = "0" * (32 << 20)
    text = (
        "module @m {\n  func.func public @f() -> (tensor<4194304xf32>) {\n"
        f'    %0 = stablehlo.constant dense<"0x{long}"> : tensor<4194304xf32>\n'
        "    %1 = stablehlo.negate %0 : tensor<4194304xf32>\n    return %1 : tensor<4194304xf32>\n  }\n}\n"
    )
    (tmp_path / "m").write_text(text)
    tracemalloc.start()
    (forward,) = read_outline(tmp_path / "m", {}).functions
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20
    assert [box.operations for box in boxes_of(forward.items)] == [{"negate": 1}]


def test_what_is_no_module(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.mlir: cannot be read \(No such file or directory\): export the"):
        read_outline(tmp_path / "nothing.mlir", {})
    (tmp_path / "m").write_bytes(bytes(range(256)) * 9)
    with pytest.raises(InputError, match=r"m: contains no function: the file is damaged: export the bundle again"):
        read_outline(tmp_path / "m", {})
