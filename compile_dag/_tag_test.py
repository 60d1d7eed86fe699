from typing import Any

import numpy as np
import pytest

from compile_dag import TAG, evaluate, has_tags, line_in_package, record, tag_info, tags_of
from lang_core import EagerExecutionContext, Module, TagSelection, Tensor, TensorSpec, TraceEscapeError

X = TensorSpec((2, 3), "f32")


class Layer(Module):
    def forward(self, ctx: Any, x: Tensor) -> Tensor:
        return ctx.tag(ctx.ops.exp(x), "out")


class Model(Module):
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]

    def forward(self, ctx: Any, x: Tensor) -> dict[str, Tensor]:
        ctx.tag(x, "in")
        for layer in self.layers:
            x = layer(ctx, x)
        (x,) = ctx.ops.fori_loop(2, lambda i, v: (ctx.tag(ctx.ops.negate(v), "round", detail=True),), (x,))
        return {"y": x}


def test_without_a_selection_and_of_what_is_not_selected_there_is_no_trace() -> None:
    plain = record(Model(), X, input_names=["x"])
    assert "tag" not in str(plain)
    assert str(record(Model(), X, input_names=["x"], tags=TagSelection(["none"]))) == str(plain)
    assert not list(tags_of(plain.nodes))


def test_what_is_selected_is_in_the_graph_and_nothing_else_changes() -> None:
    graph = record(Model(), X, input_names=["x"], tags=TagSelection(["layers.*"]))
    tags = [node for node in graph.nodes if node.op is TAG]
    assert [(node.path, node.attribute("name")) for node in tags] == [("layers.0", "out"), ("layers.1", "out")]
    used = {value.number for node in graph.nodes for value in node.inputs} | {
        value.number for value in graph.outputs.values()
    }
    assert not any(node.results[0].number in used for node in tags)
    kept = [node.op.name for node in graph.nodes if node.op is not TAG]
    assert kept == [node.op.name for node in record(Model(), X, input_names=["x"]).nodes]
    assert "= tag(%1, name='out')" in str(graph)


def test_what_is_known_of_a_tag_and_of_those_in_loops() -> None:
    graph = record(Model(), X, input_names=["x"], tags=TagSelection(["in", "layers.1.*", "round"]))
    tags = list(tags_of(graph.nodes))
    assert [(tag.name, tag.module_path, tag.op) for tag in tags] == [
        ("in", "", "placeholder"),
        ("layers.1.out", "layers.1", "exp"),
        ("round", "", "negate"),
    ]
    assert {tag.spec for tag in tags} == {X}
    source = __file__.rpartition("/")[2]
    lines = [tag.line.rpartition(source)[2] for tag in tags]
    first = Model.forward.__code__.co_firstlineno
    assert lines == [f":{first + 1}", f":{Layer.forward.__code__.co_firstlineno + 1}", f":{first + 4}"]
    assert [has_tags(node) for node in graph.nodes if node.op.name in ("tag", "while", "exp")] == [
        True, False, False, True, True,
    ]  # fmt: skip
    assert tag_info(next(node for node in graph.nodes if node.op is TAG)) == tags[0]


def test_lines_leave_out_where_the_package_was_imported_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["", "/home/a/repo/tools", "/home/a/repo"])
    assert line_in_package("/home/a/repo/tools/demo/_model.py:5") == "tools/demo/_model.py:5"
    assert line_in_package("/elsewhere/model.py:7") == "model.py:7"
    assert line_in_package("unknown") == "unknown"


@pytest.mark.parametrize("root", ["tapeline", "_main"])
def test_lines_in_bazel_are_those_of_the_repository(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    """Covers paths with and without the repository's own folder; other repositories likewise."""
    runfiles = "/cache/bin/tools/run.runfiles"
    packages = f"{runfiles}/pip_other/site-packages"
    for path in ([runfiles], [f"{runfiles}/{root}/tools", runfiles, f"{runfiles}/{root}", packages]):
        monkeypatch.setattr("sys.path", path)
        assert line_in_package(f"{runfiles}/{root}/tools/demo/_model.py:5") == "tools/demo/_model.py:5"
    assert line_in_package(f"{packages}/other/model.py:7") == "site-packages/other/model.py:7"


def test_a_graph_with_tags_is_evaluated_with_them() -> None:
    selection = TagSelection(["*", "round"])
    graph = record(Model(), X, input_names=["x"], tags=selection)
    shown: list[tuple[str, float]] = []
    ctx = EagerExecutionContext(tag_sink=lambda name, tensor: shown.append((name, float(tensor.numpy()[0, 0]))))
    evaluate(graph, ctx, {"x": ctx.constant(np.zeros((2, 3), np.float32))})
    e = np.exp(np.float32(1))
    assert shown == [("in", 0), ("layers.0.out", 1), ("layers.1.out", e), ("round", -e), ("round", e)]


def test_a_graph_with_tags_is_recorded_anew_with_them() -> None:
    graph = record(Model(), X, input_names=["x"], tags=TagSelection(["*", "round"]))
    again = record(lambda ctx, x: evaluate(graph, ctx, {"x": x}), X, input_names=["x"], name=graph.name)
    assert str(again) == str(graph)
    assert list(tags_of(again.nodes)) == list(tags_of(graph.nodes))


def test_a_tensor_with_data_is_not_tagged_in_a_recording() -> None:
    data = EagerExecutionContext().constant([1.0])
    with pytest.raises(TraceEscapeError, match=r"tag \(at the root, .*\): a tensor with data, f32\[1\], reached"):
        record(lambda ctx, x: (ctx.tag(data, "data"), x)[1], X, tags=TagSelection(["*"]))
