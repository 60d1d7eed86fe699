"""A checkpoint as the weights of a model."""

from lang_core import Module, TensorSpec, WeightSource
from transformer_core.checkpoints import ComposedWeights
from transformer_core.models._config import DecoderConfig, family_of
from transformer_core.models._decoder import DecoderLM


def weights_of(model: DecoderLM, source: WeightSource) -> WeightSource:
    """The checkpoint's tensors under the names of the model's parameters."""
    return _composed(model, source) or source


def stored_specs(model: DecoderLM, source: WeightSource) -> dict[str, TensorSpec]:
    """The checkpoint's own keys that the model needs, with the specs that it needs: what ``audit`` compares."""
    composed = _composed(model, source)
    return _wanted(model) if composed is None else composed.stored()


def tied_keys(model: DecoderLM, source: WeightSource) -> dict[str, str]:
    """What checkpoints may store twice, and the key that is read: for ``audit``."""
    if model.lm_head is not None:
        return {}
    embedding, composed = model.model.embed_tokens.weight.path, _composed(model, source)
    return {"lm_head.weight": embedding if composed is None else composed.stored_key(embedding)}


def unused_layers(model: DecoderLM, config: DecoderConfig) -> list[str]:
    """Glob patterns of stored keys of the layers of ``config`` that come after the model's last: for ``audit``."""
    key = family_of(config).layer_key
    return [f"{key.format(index)}.*" for index in range(model.config.layers, config.layers + config.extra_layers)]


def _composed(model: DecoderLM, source: WeightSource) -> ComposedWeights | None:
    stored = family_of(model.config).stored
    return None if stored is None else ComposedWeights(source, _wanted(model), stored(model.config))


def _wanted(model: Module) -> dict[str, TensorSpec]:
    return {path: parameter.spec for path, parameter in model.named_parameters()}
