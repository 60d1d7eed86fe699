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

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from transformer_core.models._registered import (
        ENCODERS,
        FAMILIES,
        SLOT_TOKENS,
        VISION_LANGUAGE,
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
        QuantizedWeights,
        ShortConvConfig,
        StoredLayout,
        VisionLanguageConfig,
        VisionLanguageLM,
        adapter_places,
        architectures,
        check_quantization,
        decoder_flow,
        entry_points,
        load_config,
        load_model,
        misspelt_fields,
        read_pooling,
        register,
        stored_encodings,
        stored_specs,
        tied_keys,
        unquantized,
        unused_keys,
        weights_of,
        write_random_model,
    )

export_lazily(__name__)
