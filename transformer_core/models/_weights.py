"""A checkpoint as the weights of a model."""

from lang_core import Module, TensorSpec, WeightSource
from transformer_core.checkpoints import ComposedWeights
from transformer_core.models._config import family_of
from transformer_core.models._decoder import DecoderLM


def weights_of(model: DecoderLM, source: WeightSource) -> WeightSource:
    """The checkpoint's tensors under the names of the model's parameters."""
    return _composed(model, source) or source


def stored_specs(model: DecoderLM, source: WeightSource) -> dict[str, TensorSpec]:
    """The checkpoint's own keys that the model needs, with the specs that it needs: what ``audit`` compares."""
    composed = _composed(model, source)
    return _wanted(model) if composed is None else composed.stored()


def _composed(model: DecoderLM, source: WeightSource) -> ComposedWeights | None:
    stored = family_of(model.config).stored
    return None if stored is None else ComposedWeights(source, _wanted(model), stored(model.config))


def _wanted(model: Module) -> dict[str, TensorSpec]:
    return {path: parameter.spec for path, parameter in model.named_parameters()}
