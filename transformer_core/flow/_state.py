"""State that the stages of one run share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lang_core import Parameter, Tensor, TensorSpec
from transformer_core.flow._adapters import RunAdapters
from transformer_core.flow._value import FlowValue, InputSpec
from transformer_core.flow._weights import ParameterKey
from transformer_core.layers._cache import Cache
from transformer_core.layers._step import StepInputs


@dataclass(frozen=True, slots=True)
class DecodeBindings:
    """Tables, masks and past keys and values, computed by the caller.

    Attributes:
        cos: f32 [T, R] or [B, T, R], as ``rope_tables`` gives it for the positions of the new tokens.
        sin: as ``cos``.
        masks: f32 [T, P + T] or [B, T, P + T] per window, added to scores: of the past's P keys, then of the new ones;
            None if each token sees all of them.
        local_cos: ``cos`` of the second RoPE, if the model has one.
        local_sin: as ``local_cos``.
    """

    cos: Tensor
    sin: Tensor
    masks: Mapping[int | None, Tensor | None]
    local_cos: Tensor | None = None
    local_sin: Tensor | None = None


@dataclass(slots=True)
class DeltaSlots:
    """Inputs of a gated delta rule that one stage computes and a later one uses.

    Attributes:
        q: queries [B, T, N, Hk]; None until ``store_delta_inputs``, as the other slots.
        k: keys [B, T, K, Hk].
        v: values [B, T, K, Hv].
        g: logarithm of the decay [B, T, K] or [B, T, K, Hk]; None if nothing is forgotten.
        beta: strength of the correction [B, T, K]; None if nothing is corrected.
        zero_beta: zeros of beta's shape, for tokens that must not change the state; None until ``zero_beta`` is asked.
    """

    q: FlowValue | None = None
    k: FlowValue | None = None
    v: FlowValue | None = None
    g: FlowValue | None = None
    beta: FlowValue | None = None
    zero_beta: FlowValue | None = None


@dataclass(slots=True)
class FlowState:
    """State of one run; new for every run.

    Attributes:
        sizes: sizes of the axis letters, from the inputs.
        inputs: inputs by name.
        declared: inputs that blocks declare; None in a run with known inputs.
        layer: path of the repeated layer that runs; empty outside.
        row: rows of the caches, as ``position``, or pages i32 [B, M]; None if the caches have the batch's rows.
        position: i32 of rank 0 or [B], position of the first token; None without caches.
        last: row of the last real token, as ``position``; None without padding.
        length: number of tokens that the sequence has in all, as ``position``; None if RoPE does not depend on it.
        adapters: LoRA adapters of the sequences; None without.
        bindings: tables and masks of the caller; None if ``rope_tables`` computes them.
        step: RoPE's cos and sin, masks and places in caches, from ``rope_tables``.
        embedding: weight [V, D] of ``token_embed``.
        hidden: spec of the residual stream, from ``token_embed``.
        residual: value between ``store_residual`` and ``add_residual`` of the recipe that runs.
        streams: streams by name.
        named: values kept under a name outside of a repeated layer or in the present one; each is written once.
        outputs: side outputs by full name, in order.
        delta: inputs of the gated delta rule of the recipe or repeated layer that runs.
        slots: caches, states and taps by module path; updated ones replace those at the start.
        wholes: caches and states of all rows at the start, if a call works on some rows.
        written: module paths of the slots that were updated.
        parameters: loaded parameters; those of transposed values are the others'.
        loaded: values of parameters that were loaded outside of a repeated layer or in the present one; those of
            earlier layers would become results of their blocks.
        synthesised: synthesised parameters by path.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, FlowValue] = field(default_factory=dict)
    declared: dict[str, InputSpec] | None = None
    layer: str = ""
    row: Tensor | None = None
    position: Tensor | None = None
    last: Tensor | None = None
    length: Tensor | None = None
    adapters: RunAdapters | None = None
    bindings: DecodeBindings | None = None
    step: StepInputs | None = None
    embedding: Parameter | None = None
    hidden: TensorSpec | None = None
    residual: FlowValue | None = None
    streams: dict[str, FlowValue] = field(default_factory=dict)
    named: dict[str, FlowValue] = field(default_factory=dict)
    outputs: dict[str, FlowValue] = field(default_factory=dict)
    delta: DeltaSlots = field(default_factory=DeltaSlots)
    slots: dict[str, Cache] = field(default_factory=dict)
    wholes: dict[str, Cache] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    parameters: dict[ParameterKey, Parameter] = field(default_factory=dict)
    loaded: dict[ParameterKey, FlowValue] = field(default_factory=dict)
    synthesised: dict[str, Parameter] = field(default_factory=dict)
