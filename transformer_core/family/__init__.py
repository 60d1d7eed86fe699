"""Parts that families of models are made of: configurations, layers, the decoder's recipe, the registry.

``transformer_core.models`` has the families themselves and registers them; import from there.
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from transformer_core._config_fields import ConfigFields
    from transformer_core.family._config import DecoderConfig, Family, load_config
    from transformer_core.family._decoder import DecoderLM, decoder_flow
    from transformer_core.family._drafting import DraftingLM
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
        SLOT_TOKENS,
        Model,
        ModelConfig,
        ModelFamily,
        entry_points,
    )
    from transformer_core.family._registry import (
        AnyFamily,
        architectures,
        config_values,
        family_in,
        family_named,
        refusals,
        register,
        register_refusal,
    )
    from transformer_core.family._sentence import Pooling, PoolingMode, read_pooling, read_score_tokens
    from transformer_core.family._wrapped import text_of

export_lazily(__name__)
