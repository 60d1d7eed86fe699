"""Recipes that were built: modules, arguments, results and entry points."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lang_core import (
    Argument,
    ConfigError,
    EntryPoint,
    ExecutionContext,
    Module,
    OpError,
    Parameter,
    Tensor,
    TensorSpec,
    WeightSource,
    checked_choices,
    near_names,
    some_of,
)
from transformer_core._names import NEXT_IDS
from transformer_core.checkpoints import Audit, audit
from transformer_core.flow._adapters import AdaptedLinear, RunAdapters, adapted_linears, adapter_arguments
from transformer_core.flow._build import BuildContext, BuildRegistry, Stage, chained
from transformer_core.flow._cache_rows import states_put, states_taken
from transformer_core.flow._context import FlowContext
from transformer_core.flow._memory import (
    Slot,
    binding_arguments,
    incoming,
    mask_name,
    memory_arguments,
    outgoing,
    slots_of,
)
from transformer_core.flow._patching import calls_others
from transformer_core.flow._profile import CompileProfile, Memory, Positions, Rows
from transformer_core.flow._stages import needed
from transformer_core.flow._state import DecodeBindings, FlowState
from transformer_core.flow._trace import SpecContext, SpecTensor
from transformer_core.flow._value import FlowValue, as_tensor, bind
from transformer_core.flow._weights import FlowWeights, LoadedParameter
from transformer_core.layers._logits import next_ids_of
from transformer_core.layers._places import last_argument, length_argument, position_argument, row_arguments

Results = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class FlowTrace:
    """Result of a run on specs.

    Attributes:
        results: specs of the results by name, in order.
        loaded: parameters that stages loaded or synthesised.
    """

    results: Mapping[str, TensorSpec]
    loaded: tuple[LoadedParameter, ...]


class FlowModel(Module):
    """Flow built for one profile; called with a context and a tensor per argument, it returns results by name.

    Args:
        name: name of the recipe, for messages.
        stages: stages of the recipe.
        profile: sizes and kind of the entry point.
        source: source of ``load_param``; None without.
        root: module to which the stages' modules are attached; the model itself if None.

    Raises:
        ConfigError: the stages contradict one another or the profile.
    """

    def __init__(
        self,
        name: str,
        stages: Sequence[Stage],
        profile: CompileProfile,
        source: WeightSource | None = None,
        root: Module | None = None,
    ) -> None:
        self._title, self._stages, self._profile = name, stages, profile
        self._root = self if root is None else root
        self._weights = FlowWeights(source)
        self._registry = BuildRegistry()
        build = BuildContext(profile, self._root, self._registry)
        self._run_stages = chained([stage.build(build) for stage in stages])
        if not self._registry.inputs:
            raise ConfigError(f"flow {name!r}: no stage is an input: begin with .input(..)")
        if profile.next_ids and not self._registry.has_head:
            raise ConfigError(f"next_ids: profile {profile.name!r} needs logits, and flow {name!r} has no .lm_head(..)")
        self._slots: tuple[Slot, ...] | None = None
        self._adapted: tuple[AdaptedLinear, ...] | None = None
        self._arguments: tuple[Argument, ...] | None = None
        self._traced: FlowTrace | None = None

    @property
    def profile(self) -> CompileProfile:
        """The profile that it is built for."""
        return self._profile

    @property
    def weights(self) -> FlowWeights:
        """The weights that it was built with, and those that its stages compute."""
        return self._weights

    def tied(self) -> dict[str, str]:
        """Returns the names under which checkpoints may store the embedding once more, with its path."""
        return self._registry.tied()

    def entry_point(self) -> EntryPoint:
        """Returns the model as a function that can be recorded, lowered and exported, named as the profile."""
        rows_apart = self._profile.cache_rows is not None  # requests share calls, and are not to see each other
        return EntryPoint(self._profile.name, self.__call__, self.arguments(), batch_invariant=rows_apart)

    def arguments(self) -> tuple[Argument, ...]:
        """Returns inputs, ``position`` and ``last``, adapters, bound cos, sin and masks, then caches, states or pasts.

        Functions and blocks that may declare inputs are run on specs for it, once.

        Raises:
            ConfigError: two arguments have one name, or nothing takes cos, sin and mask.
        """
        if self._traced is None and calls_others(self._stages, self._root):
            self.trace()
        return self._present_arguments()

    def _present_arguments(self) -> tuple[Argument, ...]:
        """Returns the arguments with the inputs that are known now."""
        if self._arguments is not None:
            return self._arguments
        profile = self._profile
        arguments = (
            *(Argument(spec.name, spec.spec(profile.sizes)) for spec in self._registry.inputs.values()),
            *self._places(),
            *self._adapter_arguments(),
            *self._binding_arguments(),
            *memory_arguments(self._kept_slots(), profile),
        )
        names = Counter(argument.name for argument in arguments)
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise ConfigError(f"flow {self._title!r}: two arguments are called {twice!r}: rename an input")
        self._arguments = arguments
        return arguments

    def _places(self) -> list[Argument]:
        """Returns ``row`` or ``pages``, ``position``, ``last`` or ``count``, ``length``: those of the profile."""
        profile, tokens, padded = self._profile, self._profile.sequence, self._profile.padded
        rows = profile.batch if profile.positions is Positions.PER_ROW else None
        if profile.cache_rows is not None:
            return row_arguments(tokens, profile.capacity, profile.cache_rows, rows, profile.page_tokens)
        position = [position_argument(tokens, profile.capacity, rows)] if profile.memory is Memory.CACHES else []
        if padded is None:
            padded = self._registry.takes_last and tokens > 1 and profile.rows is Rows.LAST
        last = [last_argument(tokens, rows)] if padded else []
        return [*position, *last, *([length_argument(rows)] if self._takes_length else [])]

    @property
    def _takes_length(self) -> bool:
        """True if frequencies of RoPE depend on the length of the sequences, and each has its own.

        In caches of which a call works on some rows, sequences share prefixes: frequencies are those of the capacity.
        """
        profile, settings = self._profile, self._registry.rope
        threshold = None if settings is None else settings.threshold
        whole = profile.memory is Memory.CACHES and profile.cache_rows is None
        return whole and threshold is not None and profile.capacity > threshold

    def _binding_arguments(self) -> tuple[Argument, ...]:
        settings = self._registry.rope
        if self._profile.memory is not Memory.BINDINGS:
            return ()
        if settings is None:
            raise ConfigError(f"flow {self._title!r}: memory bindings: no .rope_tables(..) takes cos, sin and mask")
        local = None if settings.local_rope is None else settings.local_rope.rotated
        return binding_arguments(settings.windows, settings.rope.rotated, local, self._profile)

    def _adapter_arguments(self) -> list[Argument]:
        """Returns the tables of the sequences' adapters."""
        if self._profile.adapter_rank is None:
            return []
        if self._adapted is None:
            self._adapted = adapted_linears(self._root)
        return adapter_arguments(self._adapted, self._profile)

    def _kept_slots(self) -> tuple[Slot, ...]:
        if self._slots is None:
            self._slots = slots_of(self._root, self._profile)
        return self._slots

    def forward(self, ctx: ExecutionContext, *tensors: Any) -> Mapping[str, Tensor]:
        """Runs the stages.

        Args:
            ctx: context that computes.
            tensors: one per argument, in order, of its shape; sizes of letters may differ from the profile's.

        Returns:
            The result, the side outputs, caches, states or taps, and ``next_ids``: by name, of the specs' shapes.

        Raises:
            OpError: an input does not fit, or a stage hands on a wrong value.
            ConfigError: two arguments have one name, or nothing takes cos, sin and mask.
        """
        if len(tensors) != len(self._present_arguments()):
            self.arguments()
        return self._run(ctx, tensors, declares=False)[0]

    def _run(self, ctx: ExecutionContext, tensors: Sequence[Any], *, declares: bool) -> tuple[Results, FlowState]:
        flow = FlowContext(ctx, self._root, self._profile, self._weights)
        state = flow.state
        state.declared = {} if declares else None
        self._fill_in(state, ctx, tensors)
        given = tuple(state.slots)
        result = needed(self._run_stages(flow, None), self._title)
        if state.residual is not None:
            raise OpError(f"flow {self._title!r}: a residual is stored and never added: put .add_residual()")
        for path in given:
            if path not in state.written:
                raise OpError(f"flow {self._title!r}: {path} has a cache, and no stage has run it")
        return self._results(ctx, result, state), state

    def _fill_in(self, state: FlowState, ctx: ExecutionContext, tensors: Sequence[Any]) -> None:
        """Sorts the arguments' tensors by their kind."""
        known, registry = [argument.name for argument in self._present_arguments()], self._registry
        if len(tensors) != len(known):
            raise OpError(
                f"flow {self._title!r}: expected {len(known)} tensors ({', '.join(known[:8])}"
                f"{', ..' if len(known) > 8 else ''}); found {len(tensors)}"
            )
        rest = iter([as_tensor(ctx, f"argument {name!r}", tensor) for name, tensor in zip(known, tensors, strict=True)])
        for spec in registry.inputs.values():
            tensor = next(rest)
            bind(f"input {spec.name!r}", spec.dims, spec.dtype, tensor.spec, state.sizes)
            state.inputs[spec.name] = FlowValue.of(tensor)
        places = {argument.name: next(rest) for argument in self._places()}
        state.row, state.position, state.last = (places.get(name) for name in ("row", "position", "last"))
        state.row, state.length = places.get("pages", state.row), places.get("length")
        if "count" in places:
            state.last = ctx.ops.sub(places["count"], 1)
        adapters = {argument.name: next(rest) for argument in self._adapter_arguments()}
        if adapters:
            state.adapters = RunAdapters(ctx, self._adapted or (), adapters, self._profile)
        bound = {argument.name: next(rest) for argument in self._binding_arguments()}
        state.slots = incoming(ctx, self._kept_slots(), self._profile, rest)
        if state.row is not None:
            state.wholes = dict(state.slots)
            state.slots |= states_taken(ctx, self._kept_slots(), state.slots, state.row)
        if bound and registry.rope is not None:
            masks = {window: bound.get(mask_name(window)) for window in registry.rope.windows}
            local = bound.get("local_cos"), bound.get("local_sin")
            state.bindings = DecodeBindings(bound["cos"], bound["sin"], masks, *local)

    def _results(self, ctx: ExecutionContext, result: FlowValue, state: FlowState) -> Results:
        results = {self._registry.result: result.tensor, **self._side_outputs(state)}
        slots, caches = self._kept_slots(), state.slots
        if state.row is not None:
            caches = caches | states_put(ctx, slots, state.wholes, caches, state.row)
        further = outgoing(slots, self._profile, caches)
        if self._profile.next_ids:
            further[NEXT_IDS] = next_ids_of(ctx, result.tensor)
        for name, tensor in further.items():
            if name in results:
                raise OpError(f"flow {self._title!r}: two results are called {name!r}: rename the side output")
            results[name] = tensor
        return results

    def _side_outputs(self, state: FlowState) -> dict[str, Tensor]:
        wanted = tuple(state.outputs) if self._profile.outputs is None else self._profile.outputs
        for name in wanted:
            if name not in state.outputs:
                there = some_of(name, state.outputs) or "none"
                raise OpError(
                    f"outputs of profile {self._profile.name!r}: {name!r} is no side output of flow "
                    f"{self._title!r}; available: {there}{near_names(name, state.outputs)}"
                )
            if name == self._registry.result:
                raise OpError(f"side output {name!r}: the model's result has this name: rename one")
        return {name: state.outputs[name].tensor for name in wanted}

    def trace(self) -> FlowTrace:
        """Runs the model on specs of the profile's sizes, without weights.

        ``ConfigError``, ``OpError`` as ``forward``.
        """
        if self._traced is None:
            tensors = [SpecTensor(argument.spec) for argument in self._present_arguments()]
            results, state = self._run(SpecContext(), tensors, declares=True)
            if state.declared:
                self._registry.inputs.update(state.declared)
                self._arguments = None
            loaded = [LoadedParameter(parameter, asked.key) for asked, parameter in state.parameters.items()]
            loaded += [LoadedParameter(parameter, None) for parameter in state.synthesised.values()]
            self._traced = FlowTrace({name: tensor.spec for name, tensor in results.items()}, tuple(loaded))
        return self._traced

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yields the modules' parameters, then those that stages load by key or compute."""
        yield from super().named_parameters()
        if not calls_others(self._stages, self._root):
            return
        loaded = self.trace().loaded
        own = {path for path, _ in super().named_parameters()} if loaded else set()
        for entry in loaded:
            if entry.parameter.path not in own:
                yield entry.parameter.path, entry.parameter

    @checked_choices
    def audit(self, *, strict: bool = True) -> Audit:
        """Compares the parameters with the weights that the model was built with: missing, unused, of another shape.

        Raises:
            ConfigError: the model was built without weights.
            CheckpointError: see ``transformer_core.checkpoints.audit``.
        """
        source = self._weights.source
        if source is None:
            raise ConfigError(f"flow {self._title!r}: it was built without weights: pass build(.., weights=..)")
        keys = {loaded.parameter.path: loaded.key for loaded in self.trace().loaded}
        wanted: dict[str, TensorSpec] = {}
        for path, parameter in self.named_parameters():
            key = keys.get(path, path)
            if key is not None:
                wanted.setdefault(key, parameter.spec)
        return audit(source, wanted, tied=self.tied(), strict=strict)
