"""Stage that computes the inputs that all layers of a run share."""

from dataclasses import dataclass, replace

from lang_core import ConfigError, Tensor
from transformer_core.flow._build import BuildContext, RopeSettings, StageRun
from transformer_core.flow._context import FlowContext
from transformer_core.flow._profile import Memory
from transformer_core.flow._stages import needed
from transformer_core.flow._state import DecodeBindings
from transformer_core.flow._value import FlowValue
from transformer_core.layers._cache import State
from transformer_core.layers._places import cache_starts
from transformer_core.layers._step import StepInputs, extending_step, make_step


@dataclass(frozen=True, slots=True)
class RopeTables:
    """Computes RoPE's cos and sin, the mask of each window and the places in caches; the value stays as it is.

    Attributes:
        settings: RoPE, and the windows of the layers.
        name: name of the stage.
    """

    settings: RopeSettings
    name: str = ""

    def build(self, build: BuildContext) -> StageRun:
        """Checks the profile.

        Raises:
            ConfigError: the sequence is longer than RoPE reaches, or a window is not causal.
        """
        profile, settings = build.profile, self.settings
        reach, has_window = settings.rope.reach, any(window is not None for window in settings.windows)
        if reach is not None and profile.reach > reach:
            raise ConfigError(
                f"profile {profile.name!r}: expected at most {reach} positions, which the model's RoPE reaches; "
                f"found {profile.reach}: lower {'max_sequence' if profile.keeps else 'sequence'}"
            )
        if not profile.causal and has_window:
            raise ConfigError(f"windows: a window looks back, and profile {profile.name!r} is not causal")
        if not profile.masked and has_window:
            raise ConfigError(f"masked: a window is a mask, and profile {profile.name!r} has none: use masked=true")
        if not profile.causal and profile.keeps:
            raise ConfigError(
                f"causal: profile {profile.name!r} keeps keys and values of tokens that did not see those after them: "
                f"memory must be none or taps; found {profile.memory.value}"
            )
        build.registry.rope = settings
        return self._run

    def _run(self, flow: FlowContext, x: FlowValue | None) -> FlowValue:
        x = needed(x, self.name or "rope_tables")
        flow.state.step = self._step(flow, x)
        return x

    def _step(self, flow: FlowContext, x: FlowValue) -> StepInputs:
        ctx, state, ops = flow.ctx, flow.state, flow.ctx.ops
        batch, queries = x.shape[:2]
        if state.bindings is not None:
            return self._bound(flow, state.bindings)
        rope, windows, local = self.settings.rope, self.settings.windows, self.settings.local_rope
        chunked = self.settings.chunked
        if state.position is not None:
            caches = tuple(state.slots.values())
            position, last = state.position, state.last
            return extending_step(
                ctx,
                rope,
                windows,
                queries,
                chunked=chunked,
                batch=batch,
                position=position,
                last=last,
                caches=caches,
                row=state.row,
                local_rope=local,
                length=flow.profile.capacity if state.length is None else state.length,
            )
        length = None
        if rope.scaling.depends_on_length and state.last is not None:
            length = ops.add(state.last, 1)
        step = make_step(
            ctx, rope, windows, queries, chunked=chunked, length=length, count=self._count(flow), local_rope=local
        )
        if not flow.profile.causal:
            step = replace(step, biases=dict.fromkeys(windows, ops.constant(0.0, "f32")))
        if flow.profile.memory is Memory.TAPS:
            step = replace(step, places=dict.fromkeys(step.biases, cache_starts(ctx, ops.constant(0, "i32"))))
        return step

    def _count(self, flow: FlowContext) -> Tensor | None:
        """Returns the number of real tokens, if padding would change a state; else None."""
        last = flow.state.last
        if last is None or not any(isinstance(cache, State) for cache in flow.state.slots.values()):
            return None
        return flow.ctx.ops.add(last, 1)

    def _bound(self, flow: FlowContext, bound: DecodeBindings) -> StepInputs:
        """Returns the caller's tables and masks."""
        return StepInputs(
            bound.cos,
            bound.sin,
            None,
            bound.masks,
            dict.fromkeys(bound.masks, cache_starts(flow.ctx, flow.ctx.ops.constant(0, "i32"))),
            self._count(flow),
            bound.local_cos,
            bound.local_sin,
        )
