"""Recipes of a configuration's parameters in files of an architecture."""

from typing import Any

from transformer_core.checkpoints import RecipeOf
from transformer_core.models import DeltaConfig
from transformer_core.models.gguf._encoder_keys import encoder_keys
from transformer_core.models.gguf._hybrid_keys import HybridKeys
from transformer_core.models.gguf._keys import GgufKeys
from transformer_core.models.gguf.readers import GgufArchitecture


def recipes_of(config: Any, architecture: GgufArchitecture) -> RecipeOf:
    """Returns the recipes of a configuration's parameters."""
    encoder = encoder_keys(config, architecture)
    if encoder is not None:
        return encoder
    keys = HybridKeys if isinstance(config.mixer, DeltaConfig) else GgufKeys
    return keys(config, architecture)
