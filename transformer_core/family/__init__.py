"""Parts that families of models are made of: configurations, layers, the decoder's recipe, the registry.

``transformer_core.models`` has the families themselves and registers them; import from there.
"""

from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig, Family, load_config
from transformer_core.family._decoder import DecoderLM, decoder_flow
from transformer_core.family._drafting import DRAFT, DraftingLM
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._kinds import WHERE, kind_of, near_of_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import (
    DeltaConfig,
    ExpertsConfig,
    LatentConfig,
    Mamba2Config,
    MixerConfig,
    NormKind,
    ShortConvConfig,
)
from transformer_core.family._model import (
    POSITIONS,
    SLOT_TOKENS,
    WINDOW_CACHES,
    Model,
    ModelConfig,
    ModelFamily,
    entry_points,
)
from transformer_core.family._packed_texts import PACKED, TEXT_ALIGNMENT
from transformer_core.family._registry import (
    CONFIG_FILE,
    architectures,
    config_values,
    family_in,
    family_named,
    register,
    register_refusal,
)
from transformer_core.family._sentence import (
    MODULES_FILE,
    SENTENCE_CONFIGS,
    SENTENCE_FILES,
    SENTENCE_WEIGHTS,
    Pooling,
    PoolingMode,
    SentenceModule,
    read_modules,
    read_pooling,
    read_score_tokens,
    read_transformer_settings,
)
from transformer_core.family._wrapped import text_of

__all__ = [
    "WHERE",
    "CONFIG_FILE",
    "ConfigFields",
    "DRAFT",
    "heads_of",
    "llama_kind",
    "PACKED",
    "POSITIONS",
    "MODULES_FILE",
    "SENTENCE_CONFIGS",
    "SENTENCE_FILES",
    "SENTENCE_WEIGHTS",
    "SLOT_TOKENS",
    "TEXT_ALIGNMENT",
    "WINDOW_CACHES",
    "DecoderConfig",
    "DecoderLM",
    "DecoderLayer",
    "DeltaConfig",
    "DraftingLM",
    "ExpertsConfig",
    "Family",
    "LatentConfig",
    "Mamba2Config",
    "MixerConfig",
    "Model",
    "ModelConfig",
    "ModelFamily",
    "NormKind",
    "Pooling",
    "PoolingMode",
    "SentenceModule",
    "ShortConvConfig",
    "architectures",
    "config_values",
    "decoder_flow",
    "entry_points",
    "family_in",
    "family_named",
    "load_config",
    "read_modules",
    "read_pooling",
    "read_transformer_settings",
    "read_score_tokens",
    "register",
    "register_refusal",
    "kind_of",
    "near_of_kind",
    "text_of",
]
