"""The run of a flow as stages see it, and the base class of modules that use it."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from lang_core import ConfigError, DType, Module, OpError, Tensor, checked_choices, near_keywords
from transformer_core.flow._memory import Remembering
from transformer_core.flow._run_values import RunValues
from transformer_core.flow._state import DeltaSlots
from transformer_core.flow._value import FlowValue, checked, checked_shape
from transformer_core.layers._attention import Attention
from transformer_core.layers._cache import Cache, CachedLayer, CacheLayout, StateMixer
from transformer_core.layers._gated_delta_net import DeltaState
from transformer_core.layers._latent_attention import LatentAttention
from transformer_core.layers._step import StepInputs

_CACHED: Final = (CachedLayer, Attention, LatentAttention)
"""Modules that are called with x, the step, a cache and what else they take, and return x and the cache."""


@near_keywords
class FlowContext(RunValues):
    """One run of a flow: its values by name, and the running of modules with their caches and states."""

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
            x, *further = tensors
            result, cache = module(self.ctx, x, self.step, self.slot(module, owner), *further)
            self.fill(module, cache if owner is None else self.slot(module))
            return (FlowValue.of(result),)
        if isinstance(module, StateMixer):
            result, state = module(self.ctx, *tensors, self.slot(module), self.count)
            self.fill(module, state)
            return (FlowValue.of(result),)
        results = module(self.ctx, *tensors)
        outputs = results if isinstance(results, tuple) else (results,)
        return [FlowValue.of(result) if isinstance(result, Tensor) else result for result in outputs]

    @property
    def step(self) -> StepInputs:
        """RoPE's tables and the masks.

        Raises:
            OpError: they were not computed by a stage.
        """
        if self.state.step is None:
            raise OpError(f"{self.where} needs RoPE's tables: put .rope_tables(..) before this stage")
        return self.state.step

    @property
    def count(self) -> Tensor | None:
        """The number of tokens before padding, i32 of rank 0 or [B]; None without padding."""
        state = self.state
        if state.step is not None or state.last is None:
            return None if state.step is None else state.step.count
        return self.ctx.ops.add(state.last, 1)

    @contextmanager
    def scope(self, path: str) -> Iterator[None]:
        """Runs the stages of an included recipe: at its path, with a residual of its own.

        Raises:
            OpError: a residual is stored and never added.
        """
        ctx, state = self.ctx, self.state
        before, ctx.module_path = ctx.module_path, path
        outer, state.residual = state.residual, None
        delta, state.delta = state.delta, DeltaSlots()
        try:
            yield
            if state.residual is not None:
                raise OpError(f"{path}: a residual is stored and never added: put .add_residual()")
        finally:
            ctx.module_path, state.residual, state.delta = before, outer, delta

    @contextmanager
    def layer(self, path: str) -> Iterator[None]:
        """Runs a repeated layer with its own cached and loaded values, which must not leave its block."""
        state = self.state
        before = state.layer, state.named, state.loaded
        state.layer, state.named, state.loaded = path, dict(state.named), dict(state.loaded)
        try:
            with self.scope(path):
                yield
        finally:
            state.layer, state.named, state.loaded = before

    def slot(self, module: Module, sibling: int | None = None) -> Cache | None:
        """Returns a module's present cache or state, or that of layer ``sibling`` of the same repetition."""
        path = module.path if sibling is None else f"{module.path.rpartition('.')[0]}.{sibling}"
        return self.state.slots.get(path)

    def fill(self, module: Remembering | Module, cache: Cache | None) -> None:
        """Stores a module's updated cache or state."""
        if cache is not None:
            self.state.slots[module.path] = cache
            self.state.written.add(module.path)

    def delta_state(self, owner: Remembering) -> DeltaState:
        """Returns the gated-delta state of a module after the tokens so far; zeros at the start.

        Args:
            owner: module with a ``delta_layout`` as ``cache_layout``: the block itself, in ``run``.

        Raises:
            OpError: its layout is another one.
        """
        layout = self._delta_layout(owner)
        state = self.state.slots.get(owner.path)
        if isinstance(state, DeltaState):
            return state
        return DeltaState(*[self.ctx.ops.zeros(spec.shape, spec.dtype) for spec in layout.specs.values()])

    def _delta_layout(self, owner: Remembering) -> CacheLayout:
        made = getattr(owner, "cache_layout", None)
        layout = made and made(self.state.sizes.get("B", self.profile.batch), self.profile.capacity)
        if layout is None or layout.make is not DeltaState:
            named = repr(owner.path) if isinstance(owner, Module) else f"a {type(owner).__name__}"
            raise OpError(f"delta_state of {named}: expected a cache_layout from delta_layout(conv, delta)")
        return layout

    def store_delta_state(self, owner: Remembering, state: DeltaState) -> None:
        """Stores the gated-delta state of a module, for the next call if the profile keeps states.

        Raises:
            OpError: a tensor has another spec than in the layout.
        """
        layout = self._delta_layout(owner)
        for (name, spec), tensor in zip(layout.specs.items(), state.tensors, strict=True):
            if tensor.spec != spec:
                raise OpError(f"{name} of {owner.path!r}: expected {spec!r}; found {tensor.spec!r}")
        self.fill(owner, state)

    def store_delta_inputs(
        self, q: FlowValue, k: FlowValue, v: FlowValue, g: FlowValue | None = None, beta: FlowValue | None = None
    ) -> None:
        """Stores the inputs of a gated delta rule for a later stage of this recipe or layer: ``flow.state.delta``.

        Args:
            q: queries [B, T, N, Hk].
            k: keys [B, T, K, Hk], K a divisor of N.
            v: values [B, T, K, Hv].
            g: logarithm of the decay, [B, T, K] or [B, T, K, Hk].
            beta: strength of the correction, [B, T, K].

        Raises:
            OpError: a value is missing or has another shape.
        """
        values = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
        for name, value in values.items():
            if value is not None or name in ("q", "k", "v"):
                checked(value, f"delta input {name!r} at {self.where}")
        shapes = {name: value.shape for name, value in values.items() if value is not None}
        if not _fit(shapes):
            listed = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            raise OpError(
                f"store_delta_inputs at {self.where}: expected q [B,T,N,Hk], k [B,T,K,Hk], v [B,T,K,Hv], g [B,T,K] or "
                f"[B,T,K,Hk], beta [B,T,K], K a divisor of N; found {listed}"
            )
        self.state.delta = DeltaSlots(q, k, v, g, beta)

    def zero_beta(self) -> FlowValue:
        """Returns zeros in beta's shape [B, T, K] and v's dtype: with it the stored inputs do not change the state.

        Raises:
            OpError: inputs were not stored by a stage.
        """
        slots = self.state.delta
        if slots.zero_beta is None:
            _, _, v = self._delta_inputs("zero_beta")
            slots.zero_beta = FlowValue.of(self.ctx.ops.zeros(v.shape[:3], v.dtype))
        return slots.zero_beta

    def run_delta(self, owner: Remembering, conv: Tensor | None = None, scale: float | None = None) -> FlowValue:
        """Runs the gated delta rule on the stored inputs and the state of a module, and stores its new state.

        Args:
            owner: module with a ``delta_layout`` as ``cache_layout``.
            conv: state of its convolution after the tokens, [B, W - 1, C]; unchanged if None.
            scale: of the result; 1 / sqrt(Hk) if None.

        Returns:
            o [B, T, N, Hv].

        Raises:
            OpError: inputs were not stored by a stage, or do not fit the state.
        """
        (q, k, v), slots, before = self._delta_inputs("run_delta"), self.state.delta, self.delta_state(owner)
        g, beta = (None if value is None else value.tensor for value in (slots.g, slots.beta))
        o, delta = self.ctx.ops.gated_delta_rule(q.tensor, k.tensor, v.tensor, g, beta, before.delta, scale)
        self.store_delta_state(owner, DeltaState(before.conv if conv is None else conv, delta))
        return FlowValue.of(o)

    def _delta_inputs(self, asked: str) -> tuple[FlowValue, FlowValue, FlowValue]:
        slots = self.state.delta
        if slots.q is None or slots.k is None or slots.v is None:
            raise OpError(f"{asked} at {self.where}: no stage has stored q, k and v: call flow.store_delta_inputs(..)")
        return slots.q, slots.k, slots.v

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
            dtype: dtype of the value; if None the profile's, or the stored one if that is not floating.
            shape: required shape of the value; any if None.

        Raises:
            CheckpointError: the key is missing, or its tensor has another shape; names key, shapes and module path.
        """
        return self._loader.load(key, transpose, dtype, shape)

    def synth_param(
        self,
        name: str,
        data: Any,
        *,
        shape: tuple[int, ...] | None = None,
        dtype: DType | str | None = None,
    ) -> FlowValue:
        """Adds a parameter with values that the flow computes; ``FlowModel.weights`` has them.

        A context reads the parameter from its weights if they have it.

        Args:
            name: name of the parameter; in a repeated layer below the layer's path.
            data: number, nested sequences or array.
            shape: required shape; any if None.
            dtype: dtype of the parameter; if None the profile's for floating values, else their own.

        Raises:
            ConfigError: a weight, a module's parameter or a synthesised parameter has the name, the shape differs, or
                a value does not fit the dtype.
        """
        return self._loader.synthesise(name, data, shape, dtype)

    def synth_zeros(self, name: str, shape: tuple[int, ...], *, dtype: DType | str | None = None) -> FlowValue:
        """Adds a parameter of zeros; arguments as for ``synth_param``.

        Raises:
            ConfigError: as for ``synth_param``, or the shape does not fit in memory.
        """
        asked = f"synth_zeros({name!r}) at {self.where}"
        dims = checked_shape(shape, asked)
        try:
            zeros = np.zeros(dims)
        except (ValueError, MemoryError) as error:
            raise ConfigError(f"{asked}: the shape {shape!r} does not fit in memory: {error}") from None
        return self._loader.synthesise(name, zeros, dims, dtype)


def _fit(shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Returns whether shapes by name are those of the inputs of a gated delta rule."""
    q, k, v = (shapes[name] for name in ("q", "k", "v"))
    if not len(q) == len(k) == len(v) == 4 or not k[2] or q[2] % k[2]:
        return False
    good = k == (*q[:2], k[2], q[3]) and v[:3] == k[:3]
    return good and shapes.get("g", k) in (k, k[:3]) and shapes.get("beta", k[:3]) == k[:3]


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

    _may_declare = True

    def __init_subclass__(cls, *, may_declare: bool = True, **kwargs: Any) -> None:
        """Notes whether ``run`` may load parameters by key or declare inputs; models are run on specs for these."""
        super().__init_subclass__(**kwargs)
        cls._may_declare = may_declare

    @classmethod
    def may_declare(cls) -> bool:
        """Returns whether ``run`` may load parameters by key or declare inputs; a subclass may unless it denies it."""
        return cls._may_declare

    @abstractmethod
    def run(self, flow: FlowContext, *values: FlowValue) -> FlowValue | tuple[FlowValue, ...]:
        """Computes the block's results.

        Args:
            flow: the run; ``flow.run(self.inner, x)`` runs a module inside of this one.
            values: the present value, or one per stream and then one per name, as the stage lists them.

        Returns:
            A value, or one per stream, each compared with its tensor.
        """
