"""Front doors of reverse mode: the gradient of a graph, and of a function of a context."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from compile_dag._context import GraphExecutionContext
from compile_dag._evaluate import replay
from compile_dag._graph import ComputeGraph
from compile_dag._node import Node, Value
from compile_dag._record import named_outputs
from compile_dag.gradient._backward import backward
from lang_core import ExecutionContext, GraphError, Tensor, TensorSpec, near_names, nests_regions


@nests_regions
def gradient(graph: ComputeGraph, of: str, wrt: Sequence[str]) -> ComputeGraph:
    """Returns the graph with the gradients of one of its outputs as further outputs.

    Args:
        graph: graph to differentiate.
        of: name of the output; one floating number (rank 0).
        wrt: names of inputs, or paths of parameters.

    Returns:
        A new graph: the outputs of the given one, and ``gradient.<name>`` for each name in ``wrt``, of that input's or
        parameter's spec. Values without influence on the output get zeros.

    Raises:
        GraphError: the output, input or parameter does not exist or is not floating, or an op on the way lacks a
            gradient.

    >>> from compile_dag import record
    >>> from compile_dag.gradient import gradient
    >>> from lang_core import TensorSpec
    >>> square = record(lambda ctx, x: {"y": ctx.ops.mul(x, x)}, TensorSpec((), "f32"), input_names=["x"])
    >>> list(gradient(square, of="y", wrt=["x"]).outputs)
    ['y', 'gradient.x']
    """
    loss = graph.output(of)
    _check_loss(graph.name, of, loss)
    wanted = [_wanted(graph, name) for name in wrt]
    ctx = GraphExecutionContext()
    with ctx.recording() as tape:
        known: dict[int, Tensor] = {v.number: ctx.placeholder(name, v.spec) for name, v in graph.inputs.items()}
        replay(graph.nodes, ctx, known)
        slopes = _gradients(ctx, graph.nodes, known, loss, wanted)
        outputs = {name: known[value.number] for name, value in graph.outputs.items()}
        outputs |= {f"gradient.{name}": slope for name, slope in zip(wrt, slopes, strict=True)}
    return tape.to_compute_graph(outputs, graph.name)  # pyright: ignore[reportArgumentType]


def _wanted(graph: ComputeGraph, name: str) -> list[Value]:
    """Returns the values that a name stands for: an input, or all reads of a parameter."""
    given = graph.inputs.get(name)
    values = [given] if given is not None else _reads(graph.nodes, name)
    if not values:
        names = [*graph.inputs, *graph.parameters()]
        raise GraphError(
            f"graph {graph.name!r} has no input or parameter {name!r} to differentiate with respect to"
            f"{near_names(name, names)}"
        )
    _check_floating(graph.name, name, values[0].spec)
    return values


def _reads(nodes: Sequence[Node], path: str) -> list[Value]:
    return [node.results[0] for node in nodes if node.op.name == "parameter" and node.attributes[0] == path]


def _check_loss(title: str, name: str, loss: Tensor) -> None:
    if loss.shape or not loss.dtype.is_floating:
        raise GraphError(
            f"the gradient of {name!r} of {title!r} was asked for, and it is {loss.spec!r}: reduce it to one floating "
            f"number (rank 0), for instance with ctx.ops.sum or ctx.ops.mean"
        )


def _check_floating(title: str, name: str, spec: TensorSpec) -> None:
    if not spec.dtype.is_floating:
        raise GraphError(
            f"the gradient with respect to {name!r} of {title!r} was asked for, and it is {spec!r}: only floating "
            f"tensors have one"
        )


def _gradients(
    ctx: ExecutionContext, nodes: Sequence[Node], known: dict[int, Tensor], loss: Value, wanted: Sequence[list[Value]]
) -> list[Tensor]:
    """Returns the gradient with respect to each list of values that stand for one thing; zeros if there is none."""
    seed = ctx.ops.constant(1.0, loss.dtype)
    slopes = iter(backward(ctx, nodes, known, [(loss, seed)], [value for group in wanted for value in group], {}))
    return [_total(ctx, group[0].spec, [next(slopes) for _ in group]) for group in wanted]


def _total(ctx: ExecutionContext, spec: TensorSpec, parts: Sequence[Tensor | None]) -> Tensor:
    present = [part for part in parts if part is not None]
    if not present:
        return ctx.ops.zeros(spec.shape, spec.dtype)
    total = present[0]
    for part in present[1:]:
        total = ctx.ops.add(total, part)
    return total


def value_and_gradient(
    fn: Callable[..., Any], wrt: Sequence[int | str] = (0,), of: str | int | None = None
) -> Callable[..., tuple[Any, tuple[Any, ...]]]:
    """Returns a function that runs ``fn(ctx, *arguments)`` and differentiates it, in any context.

    In a recording context forward and backward ops are recorded, so a training step is an ordinary recorded function.
    An eager context records ``fn`` on the side, to know its ops, and computes.

    Args:
        fn: function of a context and arguments, each a tensor or a mapping of names to tensors. It returns the loss,
            or a sequence or mapping of tensors.
        wrt: positions of arguments, or paths of parameters that ``fn`` reads with ``ctx.parameter``.
        of: index or name of the loss among the returned tensors; None if ``fn`` returns one tensor.

    Returns:
        ``(ctx, *arguments) -> (results of fn, gradients)``: one gradient per entry of ``wrt``, in the form of the
        argument, a tensor or a mapping; zeros without influence.

    Raises:
        GraphError: when called: the loss is not one floating number, an argument is not floating, a parameter is not
            read, or an op on the way lacks a gradient.

    >>> from compile_dag.gradient import value_and_gradient
    >>> from lang_core import EagerExecutionContext
    >>> ctx = EagerExecutionContext()
    >>> loss, (slope,) = value_and_gradient(lambda ctx, x: ctx.ops.mul(x, x))(ctx, ctx.constant(3.0))
    >>> float(loss), float(slope)
    (9.0, 6.0)
    """

    @nests_regions
    def run(ctx: ExecutionContext, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        if isinstance(ctx, GraphExecutionContext) and ctx.isRecording:
            return _recorded(ctx, fn, arguments, wrt, of)
        return _replayed(ctx, fn, arguments, wrt, of)

    return run


def _recorded(
    ctx: GraphExecutionContext, fn: Callable[..., Any], arguments: Sequence[Any], wrt: Sequence[int | str], of: Any
) -> tuple[Any, tuple[Any, ...]]:
    """Differentiates in a recording: the nodes recorded forward are watched, and gone through backward."""
    with ctx.watched() as nodes:
        returned = fn(ctx, *arguments)
    values = [value for node in nodes for value in (*node.inputs, *node.results)]
    values += [tensor for argument in arguments for tensor in _tensors(argument)]
    known: dict[int, Tensor] = {value.number: value for value in values if isinstance(value, Value)}
    loss = _loss(fn, returned, of)
    return returned, _in_form(ctx, fn, nodes, known, loss, arguments, wrt)


def _replayed(
    ctx: ExecutionContext, fn: Callable[..., Any], arguments: Sequence[Any], wrt: Sequence[int | str], of: Any
) -> tuple[Any, tuple[Any, ...]]:
    """Differentiates in any other context: records the function on the side, then runs the nodes here."""
    side = GraphExecutionContext()
    side.module_path = ctx.module_path
    with side.recording() as tape:
        count = iter(range(1 << 30))
        inside = [
            _mapped(argument, lambda tensor: side.placeholder(f"x{next(count)}", tensor.spec)) for argument in arguments
        ]
        returned = fn(side, *inside)
    pairs = zip(_all_tensors(inside), _all_tensors(arguments), strict=True)
    known: dict[int, Tensor] = {value.number: tensor for value, tensor in pairs}
    replay(tape.nodes, ctx, known)
    loss = _loss(fn, returned, of)
    gradients = _in_form(ctx, fn, tape.nodes, known, loss, inside, wrt)
    return _mapped(returned, lambda value: known[value.number]), gradients


def _loss(fn: Callable[..., Any], returned: Any, of: Any) -> Value:
    title = getattr(fn, "__name__", type(fn).__name__)
    outputs = named_outputs(returned, title)
    key = f"result{of}" if isinstance(of, int) else "result" if of is None else of
    if key not in outputs:
        known = ", ".join(outputs) or "none"
        raise GraphError(
            f"value_and_gradient({title}): of={of!r} is not among its results: {known}{near_names(key, outputs)}: "
            f"say which one is the loss"
        )
    _check_loss(title, key, outputs[key])
    return outputs[key]


def _in_form(
    ctx: ExecutionContext,
    fn: Callable[..., Any],
    nodes: Sequence[Node],
    known: dict[int, Tensor],
    loss: Value,
    arguments: Sequence[Any],
    wrt: Sequence[int | str],
) -> tuple[Any, ...]:
    """Returns the gradients in the form of the arguments; ``arguments`` are the recorded ones."""
    title = getattr(fn, "__name__", type(fn).__name__)
    wanted: list[list[Value]] = []
    forms: list[Any] = []
    for entry in wrt:
        if isinstance(entry, str):
            groups: Any = [_reads(nodes, entry)]
            if not groups[0]:
                paths = [node.attributes[0] for node in nodes if node.op.name == "parameter"]
                raise GraphError(
                    f"value_and_gradient({title}): no parameter {entry!r} is read{near_names(entry, paths)}"
                )
            forms.append(None)
        else:
            if not -len(arguments) <= entry < len(arguments):
                raise GraphError(
                    f"value_and_gradient({title}): wrt has {entry}, and there are {len(arguments)} arguments"
                )
            groups = [[tensor] for tensor in _tensors(arguments[entry])]
            forms.append(arguments[entry])
        for group in groups:
            _check_floating(title, str(entry), group[0].spec)
        wanted += groups
    slopes = iter(_gradients(ctx, nodes, known, loss, wanted))
    return tuple(next(slopes) if form is None else _mapped(form, lambda _: next(slopes)) for form in forms)


def _tensors(argument: Any) -> list[Any]:
    return list(argument.values()) if isinstance(argument, Mapping) else [argument]


def _all_tensors(arguments: Sequence[Any]) -> Iterator[Any]:
    for argument in arguments:
        yield from _tensors(argument)


def _mapped(structure: Any, function: Callable[[Any], Any]) -> Any:
    """Returns a tensor, sequence or mapping of tensors with each one replaced."""
    if isinstance(structure, Mapping):
        return {name: function(item) for name, item in structure.items()}
    if isinstance(structure, Sequence):
        return tuple(function(item) for item in structure)
    return function(structure)
