"""All families, registered, and the functions that read models of them."""

from transformer_core.checkpoints.quantized import QuantizedWeights
from transformer_core.family import (
    SLOT_TOKENS,
    DecoderConfig,
    DecoderLayer,
    DecoderLM,
    DeltaConfig,
    DraftingLM,
    ExpertsConfig,
    Family,
    LatentConfig,
    Mamba2Config,
    MixerConfig,
    Model,
    ModelConfig,
    ModelFamily,
    NormKind,
    Pooling,
    PoolingMode,
    ShortConvConfig,
    architectures,
    decoder_flow,
    entry_points,
    load_config,
    read_pooling,
    register,
    register_refusal,
)
from transformer_core.models._adapter_places import adapter_places
from transformer_core.models._load import load_model, misspelt_fields
from transformer_core.models._random import write_random_model
from transformer_core.models._stored_layout import StoredLayout
from transformer_core.models._weights import (
    check_quantization,
    stored_encodings,
    stored_specs,
    tied_keys,
    unquantized,
    unused_keys,
    weights_of,
)
from transformer_core.models.encoders import DECODER_ENCODERS, ENCODERS
from transformer_core.models.families import FAMILIES, REFUSED
from transformer_core.models.vision_language import VISION_LANGUAGE, VisionLanguageConfig, VisionLanguageLM

for _family in (*ENCODERS, *FAMILIES, *DECODER_ENCODERS, *VISION_LANGUAGE):
    register(_family)
for _architecture, _reason in REFUSED.items():
    register_refusal(_architecture, _reason)

__all__ = [
    "ENCODERS",
    "FAMILIES",
    "StoredLayout",
    "SLOT_TOKENS",
    "VISION_LANGUAGE",
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
    "QuantizedWeights",
    "ShortConvConfig",
    "VisionLanguageConfig",
    "VisionLanguageLM",
    "adapter_places",
    "architectures",
    "check_quantization",
    "decoder_flow",
    "entry_points",
    "load_config",
    "load_model",
    "misspelt_fields",
    "read_pooling",
    "register",
    "stored_encodings",
    "stored_specs",
    "tied_keys",
    "unquantized",
    "unused_keys",
    "weights_of",
    "write_random_model",
]
