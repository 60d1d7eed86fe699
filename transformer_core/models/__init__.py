"""Models of all families: configurations, modules, entry points.

>>> from transformer_core.models import DecoderConfig, DecoderLM, entry_points
>>> config = DecoderConfig.from_hf({
...     "architectures": ["LlamaForCausalLM"], "vocab_size": 11, "hidden_size": 12, "intermediate_size": 20,
...     "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
...     "max_position_embeddings": 64})
>>> model = DecoderLM(config)
>>> [path for path, _ in model.named_parameters()][-2:]
['model.norm.weight', 'lm_head.weight']
>>> [argument.name for argument in entry_points(model, names=["decode"], sequence=16)[0].arguments][:3]
['token_ids', 'position', 'layers.0.key_cache']
"""

from transformer_core.checkpoints.quantized import QuantizedWeights
from transformer_core.family import (
    CONFIG_FILE,
    DRAFT,
    MODULES_FILE,
    PACKED,
    POSITIONS,
    SENTENCE_CONFIGS,
    SENTENCE_FILES,
    SENTENCE_WEIGHTS,
    SLOT_TOKENS,
    TEXT_ALIGNMENT,
    WINDOW_CACHES,
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
    SentenceModule,
    ShortConvConfig,
    architectures,
    decoder_flow,
    entry_points,
    load_config,
    read_modules,
    read_pooling,
    read_transformer_settings,
    register,
    register_refusal,
)
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
from transformer_core.models.vision_language import (
    ENCODE_IMAGE,
    PREFILL_EMBEDDINGS,
    PREFILL_EMBEDDINGS_ROW,
    VISION_LANGUAGE,
    VisionLanguageConfig,
    VisionLanguageLM,
)

for _family in (*ENCODERS, *FAMILIES, *DECODER_ENCODERS, *VISION_LANGUAGE):
    register(_family)
for _architecture, _reason in REFUSED.items():
    register_refusal(_architecture, _reason)

__all__ = [
    "CONFIG_FILE",
    "DRAFT",
    "ENCODERS",
    "ENCODE_IMAGE",
    "FAMILIES",
    "PACKED",
    "POSITIONS",
    "PREFILL_EMBEDDINGS",
    "PREFILL_EMBEDDINGS_ROW",
    "MODULES_FILE",
    "SENTENCE_CONFIGS",
    "SENTENCE_FILES",
    "StoredLayout",
    "SENTENCE_WEIGHTS",
    "SLOT_TOKENS",
    "TEXT_ALIGNMENT",
    "VISION_LANGUAGE",
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
    "QuantizedWeights",
    "ShortConvConfig",
    "VisionLanguageConfig",
    "VisionLanguageLM",
    "architectures",
    "check_quantization",
    "decoder_flow",
    "entry_points",
    "load_config",
    "load_model",
    "misspelt_fields",
    "read_modules",
    "read_pooling",
    "read_transformer_settings",
    "register",
    "stored_encodings",
    "stored_specs",
    "tied_keys",
    "unquantized",
    "unused_keys",
    "weights_of",
    "write_random_model",
]
