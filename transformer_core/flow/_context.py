"""The run of a flow as stages see it, and the base class of modules that use it."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lang_core import (
    DType,
    ExecutionContext,
    Module,
    OpError,
    Tensor,
    TensorSpec,
    as_dtype,
    checked_choices,
    near_names,
    tag_name,
)
from transformer_core._attention import Attention
from transformer_core._cache import Cache, CachedLayer
from transformer_core._gated_delta_net import GatedDeltaNet
from transformer_core._latent_attention import LatentAttention
from transformer_core._step import StepInputs
from transformer_core.flow._loading import ParameterLoader
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._state import FlowState
from transformer_core.flow._value import Dim, Emit, FlowValue, bind, checked
from transformer_core.flow._weights import FlowWeights

_CACHED: Final = (CachedLayer, Attention, LatentAttention)
"""Modules that are called with x, the step and a cache, and return x and the cache."""


class FlowContext:
    """One run of a flow.

    Attributes:
        ctx: execution context; ``flow.ctx.ops`` has the ops.
        model: root of the module tree.
        profile: profile that the model was built for.
        weights: source of ``load_param``; None where the model was built without.
        state: values and caches that stages share.
        emit: ops on flow values.
    """

    def __init__(
        self, ctx: ExecutionContext, model: Module, profile: CompileProfile, weights: FlowWeights | None
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
        """Wraps a tensor, and compares it with a spec where one is given."""
        return checked(FlowValue(tensor, tensor.spec if spec is None else spec), self.where)

    def run(self, module: Module, *values: FlowValue) -> FlowValue:
        """Runs a module of any kind with one result, and checks that result."""
        (result,) = self.run_several(module, values, 1)
        return result

    def run_several(self, module: Module, values: Sequence[FlowValue], count: int) -> tuple[FlowValue, ...]:
        """Runs a module with ``count`` results.

        Raises:
            OpError: the number of results differs, or one's spec is not its tensor's; names the module.
        """
        maker = f"{module.path or 'the root'} ({type(module).__name__})"
        before, self.ctx.module_path = self.ctx.module_path, module.path
        try:
            results = self._results_of(module, values)
        finally:
            self.ctx.module_path = before
        if len(results) != count:
            raise OpError(f"{maker}: expected {count} values; found {len(results)}: return one per stream")
        return tuple(checked(result, maker) for result in results)

    def _results_of(self, module: Module, values: Sequence[FlowValue]) -> Sequence[Any]:
        """Calls a module as its kind is called; the caller checks the results."""
        if isinstance(module, Block):
            results = module.run(self, *values)
            return results if isinstance(results, tuple) else (results,)
        tensors = [value.tensor for value in values]
        if isinstance(module, _CACHED):
            owner = module.cache_owner if isinstance(module, CachedLayer) else None
            result, cache = module(self.ctx, *tensors, self.step, self.slot(module, owner))
            self.fill(module, cache if owner is None else self.slot(module))
            return (FlowValue.of(result),)
        if isinstance(module, GatedDeltaNet):
            count = None if self.state.step is None else self.state.step.count
            result, state = module(self.ctx, *tensors, self.slot(module), count)
            self.fill(module, state)
            return (FlowValue.of(result),)
        results = module(self.ctx, *tensors)
        outputs = results if isinstance(results, tuple) else (results,)
        return [FlowValue.of(result) if isinstance(result, Tensor) else result for result in outputs]

    @property
    def step(self) -> StepInputs:
        """RoPE's tables and the masks.

        Raises:
            OpError: no stage has computed them.
        """
        if self.state.step is None:
            raise OpError(f"{self.where} needs RoPE's tables: put .rope_tables(..) before this stage")
        return self.state.step

    def slot(self, module: Module, sibling: int | None = None) -> Cache | None:
        """Returns a module's present cache or state, or that of layer ``sibling`` of the same repetition."""
        path = module.path if sibling is None else f"{module.path.rpartition('.')[0]}.{sibling}"
        return self.state.slots.get(path)

    def fill(self, module: Module, cache: Cache | None) -> None:
        """Stores a module's updated cache or state."""
        if cache is not None:
            self.state.slots[module.path] = cache
            self.state.written.add(module.path)

    def input(self, name: str) -> FlowValue:
        """Returns an input of the model."""
        return _known("input", name, self.state.inputs, self.where)

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
        """Keeps a value under a name for later stages, and returns it.

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
            dims: required shape, in sizes and letters; any where None.
            dtype: required dtype; any where None.

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

    @checked_choices
    def load_param(
        self,
        key: str,
        transpose: bool = False,
        *,
        dtype: DType | str | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> FlowValue:
        """Loads a tensor of the weights. The same key, orientation and dtype give the same parameter.

        Args:
            key: the weights' key, whatever module runs.
            transpose: whether to give the transposed matrix; the archive holds it once, as stored.
            dtype: dtype of the value; where None the profile's, or the stored one where that is not floating.
            shape: required shape of the value; any where None.

        Raises:
            CheckpointError: the key is missing, or its tensor has another shape; names key, shapes and module path.
        """
        return self._loader.load(key, transpose, dtype, shape)

    def synth_param(self, name: str, array: Any) -> FlowValue:
        """Adds a parameter whose values the flow computes; ``FlowModel.weights`` has them.

        Raises:
            ConfigError: a weight, a module's parameter or a synthesised parameter has the name.
        """
        return self._loader.synthesise(name, array)


class Block(Module):
    """Module that uses the flow: streams, kept values, weights by key, side outputs.

    Subclasses are handed to ``ModelFlow.stage``; nothing is registered. Parameters and modules that are attributes have
    paths, as in every module.

    >>> from lang_core import EagerExecutionContext
    >>> from transformer_core.flow import CompileProfile, ModelFlow
    >>> import numpy as np
    >>> class Doubled(Block):
    ...     def run(self, flow, x):
    ...         return flow.emit("add", x, x, spec=x.spec)
    >>> recipe = ModelFlow("double").input("x", ("T", 2)).stage("doubled", lambda build: Doubled())
    >>> model = recipe.build(CompileProfile.preset("encoder", sequence=1))
    >>> model(EagerExecutionContext(), np.array([[1, 2]], np.float32))["output"].numpy().tolist()
    [[2.0, 4.0]]
    """

    @abstractmethod
    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue | tuple[FlowValue, ...]:
        """Computes the block's results.

        Args:
            flow: the run; ``flow.run(self.inner, x)`` runs a module inside of this one.
            values: the present value, or one per stream and then one per name, as the stage lists them.

        Returns:
            A value, or one per stream, each compared with its tensor.
        """


def _known(kind: str, name: str, known: Mapping[str, FlowValue], where: str) -> FlowValue:
    if name not in known:
        available = ", ".join(known) or "none"
        raise OpError(f"{kind} {name!r} at {where}: not found; available: {available}{near_names(name, known)}")
    return known[name]
