"""Emits cases, runs them in StableHLO's reference interpreter, and compares."""

import io
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from compile_dag import ComputeGraph, record
from compile_hlo.emit import ArgumentParameters, Form, Overrides, dense, emit_module, tensor_type
from compile_hlo.quirks import FAULTS, QUIRKS, Fault, overrides_of
from lang_core import Argument, EagerExecutionContext, TensorSpec, as_dtype, bf16
from tests.emission._cases import Array, Case

_ULP: Final = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}
# Which of 0.0 and -0.0 is the larger is open.
EITHER_ZERO: Final = ("maximum", "minimum", "max", "min", "clamp", "sort")


def graph_of(case: Case) -> ComputeGraph:
    """Returns the case as a graph of its name."""
    return record(case.fn, *case.specs, input_names=[f"x{i}" for i in range(len(case.inputs))], name=case.name)


def arguments_of(graph: ComputeGraph) -> list[Argument]:
    """Returns plain tensor arguments for the graph's inputs."""
    return [Argument(name, value.spec) for name, value in graph.inputs.items()]


def text_of(graphs: Iterable[ComputeGraph], form: Form | None = None, overrides: Overrides = QUIRKS) -> str:
    """Returns a module of the graphs."""
    out = io.StringIO()
    emit_module(out.write, [(graph, arguments_of(graph)) for graph in graphs], form or ArgumentParameters(), overrides)
    return out.getvalue()


def text_without(fault: Fault, case: Case, target: str | None = None) -> str:
    """Returns a case's module in which a fault is not avoided, nor any fault that only other targets have."""
    kept = (other for other in FAULTS if other is not fault and (target is None or target in other.targets))
    return text_of([graph_of(case)], overrides=overrides_of(kept))


def eager_results(case: Case) -> list[Array]:
    """Returns the results of the eager context."""
    ctx = EagerExecutionContext()
    results = case.fn(ctx, *map(ctx.constant, case.inputs))
    return [tensor.numpy() for tensor in (results if isinstance(results, tuple | list) else [results])]


def parsed(text: str | bytes, allow_unregistered: bool = False) -> ir.Module:
    """Returns the text as a verified module of its own context."""
    context = jax_mlir.make_ir_context()
    context.allow_unregistered_dialects = allow_unregistered
    with context:
        module = ir.Module.parse(text)
        assert module.operation.verify()
        return module


def interpret(
    graph: ComputeGraph, inputs: Sequence[Array], weights: Sequence[Array] = (), overrides: Overrides = QUIRKS
) -> list[Array]:
    """Runs a graph in the interpreter; weights in the order of ``graph.parameters()``."""
    specs = [value.spec for value in (*graph.inputs.values(), *graph.parameters().values())]
    results = list(graph.result_specs)
    text = text_of([graph], overrides=overrides).rstrip().removesuffix("}") + _main(graph.name, specs, results) + "}\n"
    module = parsed(text)
    with module.context:
        given = [_attribute(array) for array in (*inputs, *weights)]
        attributes = stablehlo.eval_module(module, given)
        return [_array(attribute, spec) for attribute, spec in zip(attributes, results, strict=True)]


def _main(name: str, specs: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> str:
    """Returns a function main that calls another, with bf16 results as i16: Python reads no attributes of bf16."""
    operands = ", ".join(f"%x{i}" for i in range(len(specs)))
    heads = ", ".join(f"%x{i}: {tensor_type(spec)}" for i, spec in enumerate(specs))
    kinds = [tensor_type(spec) for spec in results]
    bits = [kind.replace("bf16", "i16") for kind in kinds]
    signature = f"({', '.join(map(tensor_type, specs))}) -> ({', '.join(kinds)})"
    lines = [
        f"func.func public @main({heads}) -> ({', '.join(bits)}) {{",
        f"%r:{len(results)} = call @{name}({operands}) : {signature}",
    ]
    for i, (kind, bit) in enumerate(zip(kinds, bits, strict=True)):
        lines.append(f"%b{i} = stablehlo.bitcast_convert %r#{i} : ({kind}) -> {bit}")
    lines += [f"return {', '.join(f'%b{i}' for i in range(len(results)))} : {', '.join(bits)}", "}\n"]
    return "\n".join(lines)


def _attribute(array: Array) -> ir.Attribute:
    return ir.Attribute.parse(f"{dense(array)} : {tensor_type(TensorSpec(array.shape, as_dtype(array.dtype)))}")


def _array(attribute: Any, spec: TensorSpec) -> Array:
    if not spec.size:
        return np.zeros(spec.shape, spec.dtype.numpy)
    if spec.dtype.name == "bool":
        bits = ir.DenseIntElementsAttr(attribute)
        return np.array([bool(bits[i]) for i in range(spec.size)]).reshape(spec.shape)
    array = np.array(ir.DenseElementsAttr(attribute))
    return array.view(spec.dtype.numpy) if spec.dtype is bf16 else array


def assert_agrees(
    results: Sequence[Array], wanted: Sequence[Array], case: Case, either_zero: tuple[str, ...] = EITHER_ZERO
) -> None:
    """Asserts the same dtypes and shapes, and values within the case's units in the last place.

    The sign of a zero counts, but for the ops ``either_zero``.
    """
    assert len(results) == len(wanted)
    for mine, theirs in zip(results, wanted, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), case.name
        step = case.ulps * _ULP.get(as_dtype(theirs.dtype).name, 0.0)
        a, b = (x.astype(np.float64) if x.dtype.kind in "fV" else x for x in (mine, theirs))
        if a.dtype.kind != "f" or step == 0:
            np.testing.assert_array_equal(a, b, err_msg=case.name)
        else:
            np.testing.assert_allclose(a, b, rtol=step, atol=step, err_msg=case.name)
        if a.dtype.kind == "f" and step == 0 and case.op not in either_zero:
            number = ~np.isnan(a)
            np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(b)[number], err_msg=case.name)
