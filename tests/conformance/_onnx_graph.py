"""ONNX graphs through ``ctx.ops``: each node by its adapter."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from lang_core import EagerExecutionContext, ExecutionContext, Tensor
from tests.conformance._onnx_adapters import ADAPTERS
from tests.conformance._onnx_node import Array, KnownValueNeeded, Node, NotExpressible, Value, dtype_of
from tests.conformance._onnx_refused import REFUSED

Opsets = Mapping[str, int]


def run_model(
    ctx: ExecutionContext, model: onnx.ModelProto, tensors: Mapping[str, Tensor], known: Mapping[str, Array]
) -> list[Tensor]:
    """Computes or records a model.

    Args:
        ctx: where.
        model: of any size.
        tensors: its inputs by name, as tensors of the context.
        known: those inputs whose data is known at compile time instead.

    Returns:
        A tensor per output of the model.

    Raises:
        NotExpressible: an op, an attribute or a dtype is not in the table.
        KnownValueNeeded: an input must be known at compile time.
    """
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    values: dict[str, Value] = {}
    for name, tensor in tensors.items():
        values[name] = Value(tensor=tensor, inputs=frozenset((name,)))
    for name, array in known.items():
        values[name] = Value(known=array)
    return [_as_tensor(ctx, value) for value in run_graph(ctx, model.graph, opsets, values)]


def run_graph(
    ctx: ExecutionContext, graph: onnx.GraphProto, opsets: Opsets, values: dict[str, Value], inner: bool = False
) -> list[Value]:
    """Runs a graph's nodes on the values around it, and returns its outputs.

    What is known of an inner graph's outputs stays known, so that conditions of loops are.
    """
    values = dict(values)
    for tensor in graph.initializer:
        values[tensor.name] = Value(known=onnx.numpy_helper.to_array(tensor))
    if graph.sparse_initializer:
        raise NotExpressible("sparse tensors")
    outputs = {output.name for output in graph.output}
    for proto in graph.node:
        operands = [values[name] if name else None for name in proto.input]
        folds = all(value is None or value.known is not None for value in operands)
        folds = (
            folds and (inner or outputs.isdisjoint(proto.output)) and not any(a.HasField("g") for a in proto.attribute)
        )
        results = _folded(proto, operands, opsets) if folds else _run(ctx, proto, operands, opsets, values)
        values.update(zip(proto.output, results, strict=False))
    return [values[output.name] for output in graph.output]


def _run(
    ctx: ExecutionContext,
    proto: onnx.NodeProto,
    operands: Sequence[Value | None],
    opsets: Opsets,
    values: dict[str, Value],
) -> list[Value]:
    domain = proto.domain or "ai.onnx"
    kind = proto.op_type if domain == "ai.onnx" else f"{domain}.{proto.op_type}"
    if kind not in ADAPTERS:
        raise NotExpressible(REFUSED.get(kind) or f"{kind}: not adapted")
    inputs = frozenset[str]().union(*(value.inputs for value in operands if value is not None))

    def run(graph: onnx.GraphProto, given: Sequence[Value]) -> list[Value]:
        inside = values | {proto.name: value for proto, value in zip(graph.input, given, strict=True)}
        return run_graph(ctx, graph, opsets, inside, inner=True)

    tensors = ADAPTERS[kind](Node(ctx, proto, operands, opsets.get(domain, 1), run))
    results = tensors if isinstance(tensors, Sequence) else (tensors,)
    return [_result(result, inputs) for result in results]


def _result(result: Tensor | Array | None, inputs: frozenset[str]) -> Value:
    if isinstance(result, np.ndarray):
        return Value(known=result)
    return Value(tensor=result, inputs=inputs)


def _folded(proto: onnx.NodeProto, operands: Sequence[Value | None], opsets: Opsets) -> list[Value]:
    """A node of known operands, computed at compile time, so that shapes may be computed from shapes."""
    fresh = [None if value is None else Value(known=value.known) for value in operands]
    results = _run(EagerExecutionContext(), proto, fresh, opsets, {})
    return [Value(known=v.known if v.tensor is None else v.tensor.numpy()) for v in results]


def _as_tensor(ctx: ExecutionContext, value: Value) -> Tensor:
    if value.tensor is not None:
        return value.tensor
    if value.known is None:
        raise NotExpressible("an output that no node computes")
    dtype_of(value.known)
    return ctx.constant(value.known)


def known_inputs(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> frozenset[str]:
    """Which inputs must be known at compile time; finds out by running the model eagerly, again and again.

    Raises:
        NotExpressible: the model is, whatever is known.
    """
    names: frozenset[str] = frozenset()
    while True:
        ctx = EagerExecutionContext()
        tensors = {name: ctx.constant(array) for name, array in inputs.items() if name not in names}
        try:
            run_model(ctx, model, tensors, {name: inputs[name] for name in names})
        except KnownValueNeeded as needed:
            if not needed.inputs - names:
                raise NotExpressible("a value must be known at compile time that depends on no input") from None
            names |= needed.inputs
        else:
            return names
