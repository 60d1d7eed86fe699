"""Families of decoders, one per file: their differences from a Llama."""

from typing import Final

from transformer_core.models.families._afmoe import AFMOE
from transformer_core.models.families._apertus import APERTUS
from transformer_core.models.families._arcee import ARCEE
from transformer_core.models.families._arctic import ARCTIC
from transformer_core.models.families._aria_text import ARIA_TEXT
from transformer_core.models.families._axk1 import AXK1
from transformer_core.models.families._baichuan import BAICHUAN, BAICHUAN_FIRST
from transformer_core.models.families._bailing_moe_v2 import BAILING_MOE_V2
from transformer_core.models.families._bert_decoders import BERT_DECODERS
from transformer_core.models.families._bitnet import BITNET
from transformer_core.models.families._bloom import BLOOM
from transformer_core.models.families._chatglm import CHATGLM, CHATGLM_GENERATING
from transformer_core.models.families._cohere import COHERE
from transformer_core.models.families._cohere2 import COHERE2
from transformer_core.models.families._cohere2_moe import COHERE2_MOE
from transformer_core.models.families._ctrl import CTRL
from transformer_core.models.families._cwm import CWM
from transformer_core.models.families._dbrx import DBRX
from transformer_core.models.families._deepseek_moe import BAILING_MOE, DEEPSEEK_MOE
from transformer_core.models.families._deepseek_v2 import DEEPSEEK_V2
from transformer_core.models.families._deepseek_v3 import DEEPSEEK_V3
from transformer_core.models.families._deepseek_v32 import DEEPSEEK_V32, GLM_MOE_DSA
from transformer_core.models.families._diffllama import DIFFLLAMA
from transformer_core.models.families._dots1 import DOTS1
from transformer_core.models.families._emu3 import EMU3
from transformer_core.models.families._ernie4_5 import ERNIE4_5
from transformer_core.models.families._ernie4_5_moe import ERNIE4_5_MOE
from transformer_core.models.families._exaone import EXAONE
from transformer_core.models.families._exaone4 import EXAONE4
from transformer_core.models.families._exaone_moe import EXAONE_MOE
from transformer_core.models.families._falcon import FALCON
from transformer_core.models.families._falcon_h1 import FALCON_H1
from transformer_core.models.families._flex_olmo import FLEX_OLMO
from transformer_core.models.families._flint import FLINT
from transformer_core.models.families._fuyu import FUYU
from transformer_core.models.families._gemma import GEMMA
from transformer_core.models.families._gemma2 import GEMMA2
from transformer_core.models.families._gemma3 import GEMMA3
from transformer_core.models.families._gemma3n import GEMMA3N, GEMMA3N_WRAPPED
from transformer_core.models.families._gemma4 import GEMMA4, GEMMA4_WRAPPED
from transformer_core.models.families._gemma4_unified import GEMMA4_UNIFIED, GEMMA4_UNIFIED_WRAPPED
from transformer_core.models.families._gguf_kinds import MAINCODER, PLAMO, PLAMO3, REFACT
from transformer_core.models.families._glm import GLM
from transformer_core.models.families._glm4 import GLM4
from transformer_core.models.families._glm4_moe import GLM4_MOE
from transformer_core.models.families._glm4_moe_lite import GLM4_MOE_LITE
from transformer_core.models.families._gpt2 import GPT2
from transformer_core.models.families._gpt_bigcode import GPT_BIGCODE
from transformer_core.models.families._gpt_neo import GPT_NEO
from transformer_core.models.families._gpt_neox import GPT_NEOX
from transformer_core.models.families._gpt_neox_japanese import GPT_NEOX_JAPANESE
from transformer_core.models.families._gpt_oss import GPT_OSS
from transformer_core.models.families._gptj import CODEGEN, GPTJ
from transformer_core.models.families._granite import GRANITE
from transformer_core.models.families._granite_swa import GRANITE_MOE_SWA, GRANITE_SWA
from transformer_core.models.families._granitemoe import GRANITE_MOE, GRANITE_MOE_SHARED
from transformer_core.models.families._granitemoehybrid import GRANITE_HYBRID
from transformer_core.models.families._grok import GROK
from transformer_core.models.families._helium import HELIUM
from transformer_core.models.families._hunyuan_v1_dense import HUNYUAN_V1_DENSE
from transformer_core.models.families._hunyuan_v1_moe import HUNYUAN_V1_MOE
from transformer_core.models.families._hy_v3 import HY_V3
from transformer_core.models.families._hyperclovax import HYPERCLOVAX
from transformer_core.models.families._internlm2 import INTERNLM2
from transformer_core.models.families._internlm3 import INTERNLM3, IQUESTCODER
from transformer_core.models.families._jais import JAIS
from transformer_core.models.families._jais2 import JAIS2
from transformer_core.models.families._jamba import BAMBA, JAMBA
from transformer_core.models.families._kolibri1 import KOLIBRI1
from transformer_core.models.families._laguna import LAGUNA
from transformer_core.models.families._lfm2 import LFM2
from transformer_core.models.families._lfm2_moe import LFM2_MOE
from transformer_core.models.families._lfm3 import LFM3
from transformer_core.models.families._llama import LLAMA
from transformer_core.models.families._llama4 import LLAMA4, LLAMA4_WRAPPED
from transformer_core.models.families._mamba import FALCON_MAMBA, MAMBA
from transformer_core.models.families._mamba2 import MAMBA2
from transformer_core.models.families._mellum import MELLUM
from transformer_core.models.families._mimo_v2_flash import MIMO_V2_FLASH
from transformer_core.models.families._minicpm import MINICPM
from transformer_core.models.families._minicpm3 import MINICPM3, YOUTU
from transformer_core.models.families._minimax import MINIMAX
from transformer_core.models.families._minimax_m2 import MINIMAX_M2
from transformer_core.models.families._ministral import MINISTRAL
from transformer_core.models.families._ministral3 import MINISTRAL3
from transformer_core.models.families._mistral import MISTRAL
from transformer_core.models.families._mixtral import MIXTRAL
from transformer_core.models.families._modernbert_decoder import MODERNBERT_DECODER
from transformer_core.models.families._mpt import MPT
from transformer_core.models.families._nanochat import NANOCHAT
from transformer_core.models.families._nemotron import NEMOTRON
from transformer_core.models.families._nemotron_h import NEMOTRON_H
from transformer_core.models.families._olmo import OLMO
from transformer_core.models.families._olmo2 import OLMO2
from transformer_core.models.families._olmo3 import OLMO3
from transformer_core.models.families._olmoe import OLMOE
from transformer_core.models.families._openai_gpt import OPENAI_GPT
from transformer_core.models.families._openelm import OPENELM
from transformer_core.models.families._opt import BIOGPT, OPT
from transformer_core.models.families._orion import AQUILA, INTERNLM, ORION, XVERSE
from transformer_core.models.families._other_names import OTHER_NAMES
from transformer_core.models.families._persimmon import PERSIMMON
from transformer_core.models.families._phi import PHI
from transformer_core.models.families._phi3 import PHI3
from transformer_core.models.families._phimoe import PHIMOE
from transformer_core.models.families._qwen import QWEN
from transformer_core.models.families._qwen2 import QWEN2
from transformer_core.models.families._qwen2_moe import QWEN2_MOE
from transformer_core.models.families._qwen3 import QWEN3
from transformer_core.models.families._qwen3_5 import QWEN3_5, QWEN3_5_MOE, QWEN3_5_MOE_WRAPPED, QWEN3_5_WRAPPED
from transformer_core.models.families._qwen3_moe import QWEN3_MOE
from transformer_core.models.families._qwen3_next import QWEN3_NEXT
from transformer_core.models.families._seed_oss import SEED_OSS
from transformer_core.models.families._smallthinker import SMALLTHINKER
from transformer_core.models.families._smollm3 import SMOLLM3
from transformer_core.models.families._solar_open import SOLAR_OPEN
from transformer_core.models.families._stablelm import STABLELM
from transformer_core.models.families._starcoder2 import STARCODER2
from transformer_core.models.families._step3p5 import STEP3P5
from transformer_core.models.families._vaultgemma import VAULT_GEMMA
from transformer_core.models.families._xglm import XGLM

FAMILIES = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    MIXTRAL,
    QWEN3_MOE,
    QWEN3_NEXT,
    LFM2,
    LFM2_MOE,
    MAMBA2,
    GRANITE_HYBRID,
    FALCON_H1,
    NEMOTRON_H,
    QWEN3_5,
    QWEN3_5_MOE,
    QWEN3_5_WRAPPED,
    QWEN3_5_MOE_WRAPPED,
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    GLM_MOE_DSA,
    GPT_OSS,
    ERNIE4_5_MOE,
    GLM4_MOE,
    GLM4_MOE_LITE,
    SOLAR_OPEN,
    MINIMAX,
    MINIMAX_M2,
    QWEN2_MOE,
    LLAMA4,
    LLAMA4_WRAPPED,
    PHIMOE,
    DOTS1,
    HUNYUAN_V1_MOE,
    PHI3,
    GRANITE,
    GRANITE_MOE,
    GRANITE_MOE_SHARED,
    SMOLLM3,
    OLMO,
    OLMO2,
    OLMO3,
    OLMOE,
    GEMMA,
    GEMMA2,
    VAULT_GEMMA,
    GEMMA3,
    GEMMA3N,
    GEMMA3N_WRAPPED,
    GEMMA4,
    GEMMA4_WRAPPED,
    GEMMA4_UNIFIED,
    GEMMA4_UNIFIED_WRAPPED,
    GLM,
    GLM4,
    STABLELM,
    MINISTRAL,
    MINISTRAL3,
    COHERE,
    COHERE2,
    EXAONE4,
    HUNYUAN_V1_DENSE,
    SEED_OSS,
    ERNIE4_5,
    HELIUM,
    CWM,
    APERTUS,
    ARCEE,
    NEMOTRON,
    JAIS2,
    STARCODER2,
    PHI,
    GPT_NEOX,
    GPT2,
    GPT_BIGCODE,
    GPT_NEO,
    GPTJ,
    CODEGEN,
    OPT,
    BIOGPT,
    XGLM,
    BLOOM,
    FALCON,
    MPT,
    PERSIMMON,
    FUYU,
    EMU3,
    INTERNLM3,
    IQUESTCODER,
    HYPERCLOVAX,
    NANOCHAT,
    FLEX_OLMO,
    EXAONE_MOE,
    AFMOE,
    MINICPM3,
    YOUTU,
    BITNET,
    GRANITE_SWA,
    GRANITE_MOE_SWA,
    MELLUM,
    HY_V3,
    OPENAI_GPT,
    *BERT_DECODERS,
    DIFFLLAMA,
    LAGUNA,
    LFM3,
    MIMO_V2_FLASH,
    ARIA_TEXT,
    AXK1,
    COHERE2_MOE,
    CTRL,
    DBRX,
    FLINT,
    GPT_NEOX_JAPANESE,
    KOLIBRI1,
    MODERNBERT_DECODER,
    MAMBA,
    FALCON_MAMBA,
    JAMBA,
    BAMBA,
    INTERNLM2,
    INTERNLM,
    BAICHUAN,
    BAICHUAN_FIRST,
    QWEN,
    EXAONE,
    ORION,
    XVERSE,
    AQUILA,
    MINICPM,
    CHATGLM,
    CHATGLM_GENERATING,
    ARCTIC,
    BAILING_MOE,
    BAILING_MOE_V2,
    DEEPSEEK_MOE,
    GROK,
    JAIS,
    MAINCODER,
    OPENELM,
    PLAMO,
    PLAMO3,
    REFACT,
    SMALLTHINKER,
    STEP3P5,
    *OTHER_NAMES,
)
"""Families of decoders."""

_TRANSFORMERS_FORM: Final = (
    "its files have names and fields of their own: take the checkpoint that transformers has, such as "
    "MiniMax-Text-01-hf"
)
REFUSED: Final = {
    "MiniMaxText01ForCausalLM": _TRANSFORMERS_FORM,
    "MiniMaxM1ForCausalLM": _TRANSFORMERS_FORM,
    "DeepseekV4ForCausalLM": "hyper-connections and compressed attention are not built; DeepSeek-V3.2 is supported",
    "ViTMAEForPreTraining": "it paints patches that are hidden at random; as ViTMAEModel its encoder is supported",
}
"""Architectures that differ from a supported one in one thing, and what that is."""

__all__ = ["FAMILIES", "REFUSED"]
