"""The three ways of parameters, names, scalars, aliases, and portable artifacts."""

import io
from typing import Any

import numpy as np
import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from compile_dag import ComputeGraph, record
from compile_hlo import lower_module
from compile_hlo.emit import ArgumentParameters, ExternalParameters, Form, InlineParameters, emit_module
from compile_hlo.quirks import QUIRKS
from lang_core import Argument, EntryPoint, GraphError, Module, Parameter, TensorSpec
from tests.emission._support import interpret, parsed, text_of

_ODD = [
    "plain",
    "with space",
    'quo"te',
    "back\\slash",
    "uni\u00e9\u2603\U0001f600",
    "%percent@at",
    "new\nline",
    "a.b-c$d",
]


class _Weights(Module):
    def __init__(self, *names: str) -> None:
        for name in names:
            setattr(self, name, Parameter((3, 2), "f32"))
        self.names = names

    def total(self, ctx: Any, x: Any) -> Any:
        for name in self.names:
            x = ctx.ops.add(x, ctx.parameter(getattr(self, name)))
        return x


def _graph(*names: str) -> ComputeGraph:
    weights = _Weights(*names)
    return record(weights.total, TensorSpec((3, 2), "f32"), input_names=["x"], name="f")


def _text(graph: ComputeGraph, arguments: list[Argument], form: Form) -> str:
    out = io.StringIO()
    emit_module(out.write, [(graph, arguments)], form, QUIRKS)
    return out.getvalue()


def _head(module: ir.Module) -> Any:
    return module.body.operations[0]


def test_odd_parameter_names_survive_in_external_form():
    graph = _graph(*_ODD)
    module = parsed(text_of([graph], ExternalParameters('sc"ope')), allow_unregistered=True)
    globals_ = [op for op in module.body.operations if op.operation.name == "util.global"]
    names = [ir.StringAttr(op.operation.attributes["sym_name"]).value for op in globals_]
    assert names == list(graph.parameters())
    loads = [op for op in _head(module).regions[0].blocks[0].operations if op.operation.name == "util.global.load"]
    assert [ir.FlatSymbolRefAttr(op.operation.attributes["global"]).value for op in loads] == names


def test_a_parameter_named_as_an_entry_point_is_refused():
    with pytest.raises(GraphError, match="parameter 'f' has the name of an entry point: rename one"):
        text_of([_graph("f")], ExternalParameters())


def test_inline_parameters_are_the_data():
    graph = _graph("a", "b")
    data = {path: np.arange(6, dtype=np.float32).reshape(3, 2) + i for i, path in enumerate(graph.parameters())}
    text = text_of([graph], InlineParameters(lambda path, spec: [data[path]]))
    module = parsed(text.replace("@f(", "@main("))
    with module.context:
        x = ir.Attribute.parse("dense<1.0> : tensor<3x2xf32>")
        result = np.array(ir.DenseElementsAttr(stablehlo.eval_module(module, [x])[0]))
    np.testing.assert_array_equal(result, sum(data.values()) + np.float32(1))


def test_argument_parameters_come_after_the_arguments_in_the_order_of_use():
    graph = _graph("b", "a")
    weights = [np.full((3, 2), i, np.float32) for i in (10, 200)]
    result = interpret(graph, [np.ones((3, 2), np.float32)], weights)[0]
    assert result.tolist() == [[211.0] * 2] * 3


def test_argument_names_never_meet():
    names = ["arg1", "odd name", "parameter0", "0", "1", "parameter.0", "p\u00e9"]
    weights = _Weights("w")
    fn = lambda ctx, *tensors: weights.total(ctx, tensors[-1])  # noqa: E731
    graph = record(fn, *[TensorSpec((3, 2), "f32")] * len(names), input_names=names, name="f")
    parsed(text_of([graph]))


def test_one_parameter_is_one_global_for_two_functions():
    first, second = _graph("w"), _graph("w")
    second = ComputeGraph("g", second.inputs, second.nodes, second.outputs)
    text = text_of([first, second], ExternalParameters())
    assert text.count('"util.global"()') == 1
    assert text.count('"util.global.load"()') == 2


@pytest.mark.parametrize("dtype", ["i32", "i64", "f32", "bool", "bf16"])
def test_scalars_are_numbers_for_iree_and_tensors_elsewhere(dtype: str):
    graph = record(lambda ctx, x: ctx.ops.equal(x, x), TensorSpec((), dtype), input_names=["x"], name="f")
    scalar = [Argument("x", TensorSpec((), dtype), kind="scalar")]
    element = {"bool": "i1"}.get(dtype, dtype)
    external = _text(graph, scalar, ExternalParameters())
    assert f"@f(%x: {element})" in external
    parsed(external, allow_unregistered=True)
    portable = _text(graph, scalar, ArgumentParameters())
    assert f"@f(%x: tensor<{element}>)" in portable
    parsed(portable)


def _cache(ctx: Any, cache: Any, row: Any) -> Any:
    return {"old": ctx.ops.exp(row), "cache": ctx.ops.dynamic_update_slice(cache, row, (1, 0))}


def _cache_graph() -> ComputeGraph:
    return record(_cache, TensorSpec((4, 2), "f32"), TensorSpec((1, 2), "f32"), name="f")


def test_an_alias_is_the_number_of_the_result():
    graph = _cache_graph()
    arguments = [
        Argument("cache", TensorSpec((4, 2), "f32"), alias_result="cache"),
        Argument("row", TensorSpec((1, 2), "f32")),
    ]
    text = _text(graph, arguments, ArgumentParameters())
    module = parsed(text)
    attributes = ir.ArrayAttr(_head(module).attributes["arg_attrs"])
    assert ir.IntegerAttr(ir.DictAttr(attributes[0])["tf.aliasing_output"]).value == 1
    assert len(ir.DictAttr(attributes[1])) == 0


def test_an_alias_of_another_spec_is_refused():
    arguments = [
        Argument("cache", TensorSpec((4, 2), "f32"), alias_result="old"),
        Argument("row", TensorSpec((1, 2), "f32")),
    ]
    with pytest.raises(
        GraphError, match=r"'f': argument 'cache' \(f32\[4,2\]\) cannot become result 'old' \(f32\[1,2\]\)"
    ):
        _text(_cache_graph(), arguments, ArgumentParameters())


def test_an_alias_of_no_result_is_refused():
    arguments = [
        Argument("cache", TensorSpec((4, 2), "f32"), alias_result="cach"),
        Argument("row", TensorSpec((1, 2), "f32")),
    ]
    with pytest.raises(GraphError, match=r"'cach', which is not there: it has old, cache.*cache"):
        _text(_cache_graph(), arguments, ArgumentParameters())


@pytest.mark.parametrize("streaming", [True, False])
def test_two_arguments_of_one_result_are_refused(streaming: bool):
    spec = TensorSpec((4, 2), "f32")
    arguments = (Argument("x", spec, alias_result="y"), Argument("y", spec), Argument("z", spec, alias_result="y"))
    point = EntryPoint("f", lambda ctx, x, y, z: {"y": ctx.ops.add(ctx.ops.add(x, y), z)}, arguments)
    with pytest.raises(GraphError, match="'f': arguments 'x' and 'z' are both to become result 'y': a result takes"):
        lower_module([point], lambda _: None, ExternalParameters(), streaming=streaming)


def test_arguments_that_are_not_the_inputs_are_refused():
    with pytest.raises(GraphError, match=r"function 'f': inputs \['cache', 'row'\] are not the arguments"):
        _text(_cache_graph(), [Argument("cache", TensorSpec((4, 2), "f32"))], ArgumentParameters())


def test_a_portable_artifact_keeps_the_meaning():
    graph = _graph("w")
    text = text_of([graph]).replace("@f(", "@main(")
    artifact = stablehlo.serialize_portable_artifact_str(text.encode(), stablehlo.get_current_version())
    module = parsed(stablehlo.deserialize_portable_artifact_str(artifact))
    with module.context:
        values = [ir.Attribute.parse(f"dense<{number}> : tensor<3x2xf32>") for number in (1.5, 2.0)]
        result = np.array(ir.DenseElementsAttr(stablehlo.eval_module(module, values)[0]))
    assert result.tolist() == [[3.5] * 2] * 3


def test_the_order_of_argument_parameters_can_be_given():
    graph = _graph("b", "a", "c")
    text = _text(graph, [Argument("x", TensorSpec((3, 2), "f32"))], ArgumentParameters(["c", "z", "a", "b"]))
    added = [line.rsplit(", ", 1)[1].split(" :")[0] for line in text.splitlines() if "stablehlo.add" in line]
    assert added == ["%parameter.2", "%parameter.1", "%parameter.0"]
