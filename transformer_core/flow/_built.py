"""Stages of a recipe, built into a module."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lang_core import ConfigError, ExecutionContext, Module, OpError, Tensor, WeightSource
from transformer_core._cache import Cache
from transformer_core.flow._build import BuildContext, BuildRegistry, Stage, chained
from transformer_core.flow._context import FlowContext
from transformer_core.flow._profile import CompileProfile
from transformer_core.flow._stages import needed
from transformer_core.flow._state import DecodeBindings, FlowState
from transformer_core.flow._value import FlowValue, as_tensor, bind
from transformer_core.flow._weights import FlowWeights


@dataclass(frozen=True, slots=True)
class FlowInputs:
    """Inputs of a run.

    Attributes:
        tensors: the recipe's inputs, by name.
        position: i32 of rank 0 or [B], position of the first token; None without caches.
        last: row of the last real token, as ``position``; None without padding.
        caches: caches, states or taps by the path of their module.
        bindings: tables and masks of the caller; None where ``rope_tables`` computes them.
    """

    tensors: Mapping[str, Tensor]
    position: Tensor | None = None
    last: Tensor | None = None
    caches: Mapping[str, Cache] | None = None
    bindings: DecodeBindings | None = None


class BuiltFlow:
    """Runs the stages of a recipe over the modules that they made.

    Args:
        name: name of the recipe, for messages.
        stages: stages of the recipe.
        root: module to which the stages' modules are attached.
        profile: profile that the stages are built for.
        weights: source of ``load_param``.

    Raises:
        ConfigError: the stages contradict one another or the profile.
    """

    def __init__(
        self, name: str, stages: Sequence[Stage], root: Module, profile: CompileProfile, weights: WeightSource | None
    ) -> None:
        self.name: Final = name
        self.root: Final = root
        self.profile: Final = profile
        self.weights: Final = None if weights is None else FlowWeights(weights)
        self.registry: Final = BuildRegistry()
        build = BuildContext(profile, root, self.registry)
        self._run: Final = chained([stage.build(build) for stage in stages])
        if not self.registry.inputs:
            raise ConfigError(f"flow {name!r}: no stage is an input: begin with .input(..)")

    def run(self, ctx: ExecutionContext, inputs: FlowInputs) -> tuple[FlowValue, FlowState]:
        """Runs the stages.

        Args:
            ctx: context that computes.
            inputs: inputs of the run.

        Returns:
            The value that the last stage hands on, and the state.

        Raises:
            OpError: an input does not fit, or a stage hands on a wrong value.
        """
        flow = FlowContext(ctx, self.root, self.profile, self.weights)
        state = flow.state
        for name, spec in self.registry.inputs.items():
            tensor = as_tensor(ctx, f"input {name!r}", inputs.tensors[name])
            bind(f"input {name!r}", spec.dims, spec.dtype, tensor.spec, state.sizes)
            state.inputs[name] = FlowValue.of(tensor)
        state.position, state.last, state.bindings = inputs.position, inputs.last, inputs.bindings
        state.slots = dict(inputs.caches or {})
        result = needed(self._run(flow, None), self.name)
        if state.residual is not None:
            raise OpError(f"flow {self.name!r}: a residual is stored and never added: put .add_residual()")
        for path in inputs.caches or ():
            if path not in state.written:
                raise OpError(f"flow {self.name!r}: {path} has a cache, and no stage has run it")
        return result, state
