"""How modules are called that know nothing of flows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lang_core import Module, Tensor
from transformer_core._attention import Attention
from transformer_core._cache import CachedLayer
from transformer_core._gated_delta_net import GatedDeltaNet
from transformer_core._latent_attention import LatentAttention
from transformer_core.flow._block import Block
from transformer_core.flow._value import FlowValue

if TYPE_CHECKING:
    from transformer_core.flow._context import FlowContext

_CACHED: Final = (CachedLayer, Attention, LatentAttention)
"""Modules that are called with x, the step and a cache, and give x and the cache."""


def run_module(flow: "FlowContext", module: Module, values: Sequence[FlowValue]) -> Sequence[Any]:
    """Runs a module in the way of its kind; what it hands on is checked by the caller."""
    if isinstance(module, Block):
        made = module.run(flow, *values)
        return made if isinstance(made, tuple) else (made,)
    tensors = [value.tensor for value in values]
    if isinstance(module, _CACHED):
        owner = module.cache_owner if isinstance(module, CachedLayer) else None
        result, cache = module(flow.ctx, *tensors, flow.step, flow.slot(module, owner))
        flow.fill(module, cache if owner is None else flow.slot(module))
        return (FlowValue.of(result),)
    if isinstance(module, GatedDeltaNet):
        count = None if flow.state.step is None else flow.state.step.count
        result, state = module(flow.ctx, *tensors, flow.slot(module), count)
        flow.fill(module, state)
        return (FlowValue.of(result),)
    results = module(flow.ctx, *tensors)
    return [_as_value(result) for result in (results if isinstance(results, tuple) else (results,))]


def _as_value(result: Any) -> Any:
    return FlowValue.of(result) if isinstance(result, Tensor) else result
