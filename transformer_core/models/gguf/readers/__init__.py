"""Architectures of GGUF files: from metadata to the fields of config.json."""

from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import CHANGING, Source, Values
from transformer_core.models.gguf.readers._deepseek import DEEPSEEK
from transformer_core.models.gguf.readers._experts import EXPERTS
from transformer_core.models.gguf.readers._further_kinds import FURTHER_KINDS
from transformer_core.models.gguf.readers._gemma import GEMMAS
from transformer_core.models.gguf.readers._gemma_layers import GEMMA_LAYERS
from transformer_core.models.gguf.readers._gpt import GPT_KINDS
from transformer_core.models.gguf.readers._layer_norms import LAYER_NORM_KINDS
from transformer_core.models.gguf.readers._layer_numbers import LayerNumbers
from transformer_core.models.gguf.readers._llama import LLAMA_KINDS
from transformer_core.models.gguf.readers._llama_kinds import OTHER_LLAMA_KINDS
from transformer_core.models.gguf.readers._metadata_fields import (
    SAMPLING,
    architecture_of,
    model_fields,
    sampling_fields,
    tokenizer_fields,
)
from transformer_core.models.gguf.readers._named_kinds import NAMED_KINDS
from transformer_core.models.gguf.readers._nemotron_h import NEMOTRON_HS
from transformer_core.models.gguf.readers._own_kinds import OWN_KINDS
from transformer_core.models.gguf.readers._qwen_hybrids import QWEN_HYBRIDS
from transformer_core.models.gguf.readers._rope import FREQUENCIES
from transformer_core.models.gguf.readers._selective import SELECTIVE
from transformer_core.models.gguf.readers._sparse import SPARSE
from transformer_core.models.gguf.readers._states import STATES
from transformer_core.models.gguf.readers._stored_forms import LogOfNegative
from transformer_core.models.gguf.readers._t5 import T5S
from transformer_core.models.gguf.readers._text_encoders import TEXT_ENCODERS, sentence_files

READERS = {
    architecture.name: architecture
    for architecture in (
        *LLAMA_KINDS,
        *OTHER_LLAMA_KINDS,
        *EXPERTS,
        *SPARSE,
        DEEPSEEK,
        *QWEN_HYBRIDS,
        *GEMMAS,
        *GEMMA_LAYERS,
        *LAYER_NORM_KINDS,
        *GPT_KINDS,
        *FURTHER_KINDS,
        *NAMED_KINDS,
        *OWN_KINDS,
        *STATES,
        *SELECTIVE,
        *NEMOTRON_HS,
        *TEXT_ENCODERS,
        *T5S,
    )
}
"""Reader of each architecture of GGUF files."""

__all__ = [
    "CHANGING",
    "FREQUENCIES",
    "READERS",
    "SAMPLING",
    "GgufArchitecture",
    "LayerNumbers",
    "LogOfNegative",
    "Source",
    "Values",
    "architecture_of",
    "model_fields",
    "sampling_fields",
    "sentence_files",
    "tokenizer_fields",
]
