"""The front door: a Python function in, a graph out."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload

from compile_dag._context import GraphExecutionContext
from compile_dag._graph import ComputeGraph
from compile_dag._node import Value
from compile_dag._tape import Sink
from lang_core import RecordingError, TagSelection, TensorSpec, nests_regions

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class RecordingSink(Sink, Protocol[T_co]):
    """Receiver of a whole recording, which makes something of it as it happens."""

    def begin(self, name: str, inputs: Mapping[str, Value]) -> None:
        """Takes the inputs, before the first op."""
        ...

    def end(self, outputs: Mapping[str, Value]) -> T_co:
        """Takes the outputs, and returns the sink's result."""
        ...


@overload
def record(
    fn: Callable[..., Any],
    *specs: TensorSpec,
    input_names: Sequence[str] | None = ...,
    name: str | None = ...,
    tags: TagSelection | None = ...,
) -> ComputeGraph: ...


@overload
def record(
    fn: Callable[..., Any],
    *specs: TensorSpec,
    input_names: Sequence[str] | None = ...,
    name: str | None = ...,
    sink: RecordingSink[T],
    tags: TagSelection | None = ...,
) -> T: ...


@nests_regions
def record(
    fn: Callable[..., Any],
    *specs: TensorSpec,
    input_names: Sequence[str] | None = None,
    name: str | None = None,
    sink: RecordingSink[Any] | None = None,
    tags: TagSelection | None = None,
) -> Any:
    """Records ``fn(ctx, *tensors)``.

    Args:
        fn: function of a context and one tensor per spec. It returns a tensor, a sequence of tensors, or a mapping of
            names to tensors.
        specs: specs of the arguments.
        input_names: names of the arguments; those of fn's signature if None.
        name: name of the graph; fn's name if None.
        sink: receiver of the ops as they are recorded, so that nothing has to be kept.
        tags: selection of the model's tags to record; none if None.

    Returns:
        The verified graph, or the sink's result. Outputs without a name are ``result``, or
        ``result0``, ``result1``, ...

    Raises:
        RecordingError: fn does not take the specs, or does not return tensors.

    >>> from lang_core import TensorSpec
    >>> print(record(lambda ctx, x: ctx.ops.negate(x), TensorSpec((2,), "f32"), name="f"), end="")
    graph f(%x: f32[2]) {
      %1: f32[2] = negate(%x)
      return result=%1
    }
    """
    ctx = GraphExecutionContext(tags)
    names = tuple(input_names) if input_names is not None else _argument_names(fn, specs)
    if len(names) != len(specs):
        raise RecordingError(f"record({_name_of(fn)}): {len(specs)} specs for the arguments {names}: give one for each")
    title = name or _name_of(fn)
    with ctx.recording(sink) as tape:
        inputs = [ctx.placeholder(name, spec) for name, spec in zip(names, specs, strict=True)]
        if sink is not None:
            sink.begin(title, tape.inputs)
        outputs = named_outputs(fn(ctx, *inputs), _name_of(fn))
    return tape.to_compute_graph(outputs, title) if sink is None else sink.end(outputs)


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    return name if name.isidentifier() else "main"


def _argument_names(fn: Callable[..., Any], specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    signature = inspect.signature(fn)
    try:
        signature.bind(None, *specs)
    except TypeError as error:
        raise RecordingError(f"record({_name_of(fn)}): ctx and the {len(specs)} specs do not fit: {error}") from None
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [p.name for p in signature.parameters.values() if p.kind in kinds][1:]
    names += [f"arg{i}" for i in range(len(names), len(specs))]
    return tuple(names[: len(specs)])


def named_outputs(returned: Any, name: str) -> dict[str, Value]:
    """Names the results of a recorded function.

    Raises:
        RecordingError: it is not made of recorded values.
    """
    if isinstance(returned, Mapping):
        outputs = dict(returned)
    elif isinstance(returned, Sequence):
        outputs = {f"result{i}": value for i, value in enumerate(returned)}
    else:
        outputs = {"result": returned}
    for key, value in outputs.items():
        if not isinstance(key, str):
            raise RecordingError(f"record({name}): an output is called {key!r}: return a mapping of strings to tensors")
        if not isinstance(value, Value):
            raise RecordingError(
                f"record({name}): output {key!r} is {value!r}, not a recorded value of this context: return tensors "
                f"made with ctx.ops"
            )
    return outputs
