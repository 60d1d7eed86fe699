"""Values of one run by name: inputs, streams, kept values, side outputs and parameters."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from lang_core import (
    DType,
    ExecutionContext,
    Module,
    OpError,
    Tensor,
    TensorSpec,
    as_dtype,
    near_keywords,
    near_names,
    some_of,
    tag_name,
)
from transformer_core.flow._loading import ParameterLoader
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._state import FlowState
from transformer_core.flow._value import Dim, Emit, FlowValue, InputSpec, as_tensor, bind, checked, declared
from transformer_core.flow._weights import FlowWeights


@near_keywords
class RunValues:
    """Values of one run, by name; ``FlowContext`` is these and the running of modules.

    Args:
        ctx: as the attribute.
        model: as the attribute.
        profile: as the attribute.
        weights: as the attribute.

    Attributes:
        ctx: execution context; ``flow.ctx.ops`` has the ops.
        model: root of the module tree.
        profile: profile that the model was built for.
        weights: source of ``load_param``, with the values of ``synth_param``.
        state: values and caches that stages share.
        emit: ops on flow values.
    """

    def __init__(
        self,
        ctx: ExecutionContext,
        model: Module,
        profile: CompileProfile,
        weights: FlowWeights,
    ) -> None:
        self.ctx: Final = ctx
        self.model: Final = model
        self.profile: Final = profile
        self.weights: Final = weights
        self.state: Final = FlowState()
        self.emit: Final = Emit(ctx)
        self._loader: Final = ParameterLoader(ctx, model, profile.dtype, weights, self.state)

    @property
    def module_path(self) -> str:
        """The path of the running module."""
        return self.ctx.module_path

    @property
    def where(self) -> str:
        """The same for messages: the root has a name."""
        return self.ctx.module_path or "the root"

    def value(self, tensor: Tensor, spec: TensorSpec | None = None) -> FlowValue:
        """Wraps a tensor, and compares it with a spec if one is given."""
        return checked(FlowValue(tensor, tensor.spec if spec is None else spec), self.where)

    def wrap(self, value: Any, spec: TensorSpec | None = None) -> FlowValue:
        """Returns a tensor, or an array if nothing is recorded, as a flow value; a flow value is returned as it is.

        Args:
            value: tensor of the running context, flow value, or array.
            spec: required spec; any if None.

        Raises:
            OpError: the value is of another kind, or has another spec.
            TraceEscapeError: an array reached a recording.
        """
        tensor = value.tensor if isinstance(value, FlowValue) else value
        if not isinstance(tensor, Tensor):
            if not isinstance(tensor, np.ndarray | np.generic):
                kind = type(value).__name__
                raise OpError(f"wrap at {self.where}: expected a tensor, an array or a FlowValue; found a {kind}")
            tensor = as_tensor(self.ctx, f"wrap at {self.where}", tensor)
        return self.value(tensor, spec)

    def node_shape(self, value: Any) -> tuple[int, ...]:
        """Returns the shape of a tensor or flow value as the context has it, whatever its maker declared.

        Raises:
            OpError: the value is of another kind.
        """
        tensor = value.tensor if isinstance(value, FlowValue) else value
        if not isinstance(tensor, Tensor):
            kind = type(value).__name__
            raise OpError(f"node_shape at {self.where}: expected a tensor or a FlowValue; found a {kind}")
        return tensor.shape

    def input(
        self, name: str, shape: Sequence[Dim] | TensorSpec | None = None, dtype: DType | str | None = None
    ) -> FlowValue:
        """Returns an input of the model; with a shape, one that the recipe need not have.

        Args:
            name: name of the argument; blocks that declare the same name get the same tensor.
            shape: as for ``ModelFlow.input``; an input of the recipe if None.
            dtype: dtype of the argument; the profile's if None.

        Raises:
            OpError: the input is unknown or has another shape, or the caller did not pass a tensor for it.
        """
        if shape is None:
            return _known("input", name, self.state.inputs, self.where)
        state, (dims, wanted) = self.state, declared(name, shape, dtype)
        spec = InputSpec(name, dims, wanted or self.profile.dtype)
        if name not in state.inputs:
            if state.declared is None:
                raise OpError(
                    f"input {name!r} at {self.where}: the block declares it, and the model was called without a "
                    f"tensor for it: give it after {', '.join(state.inputs)}"
                )
            state.declared[name] = spec
            state.inputs[name] = FlowValue.of(self.ctx.placeholder(name, spec.spec(self.profile.sizes)))
        value = state.inputs[name]
        bind(f"input {name!r} at {self.where}", spec.dims, spec.dtype, value.spec, state.sizes)
        return value

    def stream(self, name: str) -> FlowValue:
        """Returns the present value of a stream."""
        return _known("stream", name, self.state.streams, self.where)

    def store_stream(self, name: str, value: FlowValue) -> None:
        """Stores a value in a stream, new or not."""
        self.state.streams[name] = checked(value, f"stream {name!r} at {self.where}")

    def named(self, name: str) -> FlowValue:
        """Returns a kept value."""
        return _known("value", name, self.state.named, self.where)

    def keep(self, name: str, value: FlowValue) -> FlowValue:
        """Keeps a value under a name for later stages, and returns it; in a repeated layer, for this layer.

        Raises:
            OpError: the name is taken.
        """
        if name in self.state.named:
            raise OpError(
                f"value {name!r} at {self.where}: the name is taken: a value is kept once, a stream may change"
            )
        self.state.named[name] = checked(value, f"value {name!r} at {self.where}")
        return value

    def read(self, name: str) -> FlowValue:
        """Returns the stream, kept value or input of a name; the first of these in this order."""
        state = self.state
        return _known("value", name, {**state.inputs, **state.named, **state.streams}, self.where)

    def side_output(
        self, name: str, value: FlowValue, dims: Sequence[Dim] | None = None, dtype: DType | str | None = None
    ) -> FlowValue:
        """Makes a value a further result, named below the path of the running module, and returns it.

        Args:
            name: name of the result, unique in the module.
            value: the result.
            dims: required shape, in sizes and letters; any if None.
            dtype: required dtype; any if None.

        Raises:
            OpError: the name is taken, or shape or dtype differ.
        """
        full = tag_name(self.module_path, name)
        value = checked(value, f"side output {full!r}")
        if full in self.state.outputs:
            raise OpError(f"side output {full!r}: the name is taken")
        wanted = value.dtype if dtype is None else as_dtype(dtype)
        bind(f"side output {full!r}", value.shape if dims is None else dims, wanted, value.spec, self.state.sizes)
        self.state.outputs[full] = value
        return value


def _known(kind: str, name: str, known: Mapping[str, FlowValue], where: str) -> FlowValue:
    if not isinstance(name, str) or name not in known:
        available = some_of(name, known) or "none"
        raise OpError(f"{kind} {name!r} at {where}: not found; available: {available}{near_names(name, known)}")
    return known[name]
