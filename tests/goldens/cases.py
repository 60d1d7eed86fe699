"""The golden cases: tiny models and RoPE tables, as plain data.

``CASES`` maps a name to a ``GoldenCase``, ``ROPE_CASES`` a name to a ``RopeCase``. Nothing here imports torch or
transformers: ``make_goldens.py`` computed the files in ``data/`` from these cases, ``golden_files.py`` reads them,
``weights.py`` makes the weights and writes the checkpoints.

Axes: B batch, T positions, D model, F feed-forward, V vocabulary, L layers, N query heads, K key/value heads, H head.
"""

from tests.goldens._bert_decoder_cases import BERT_DECODER_CASES
from tests.goldens._case_types import Config, GoldenCase, RopeCase, StoredDType
from tests.goldens._family_cases import (
    GEMMA_CASES,
    GLM_CASES,
    GPT_CASES,
    GRANITE_CASES,
    OLMO2_CASES,
    PHI3_CASES,
    SMOLLM3_CASES,
    STABLELM_CASES,
)
from tests.goldens._further_cases import FURTHER_CASES
from tests.goldens._further_kind_cases import FURTHER_KIND_CASES
from tests.goldens._further_sparse_cases import FURTHER_SPARSE_CASES
from tests.goldens._gemma_cases import GEMMA_TEXT_CASES
from tests.goldens._gpt_family_cases import GPT_FAMILY_CASES
from tests.goldens._hybrid_cases import QWEN3_NEXT_CASES
from tests.goldens._llama_cases import ROPE_SCALING_CASES, STRUCTURE_CASES
from tests.goldens._llama_kind_cases import LLAMA_KIND_CASES
from tests.goldens._moe_cases import DEEPSEEK_V3_CASES, GPT_OSS_CASES, MIXTRAL_CASES, QWEN3_MOE_CASES
from tests.goldens._newer_cases import NEWER_CASES
from tests.goldens._other_cases import MISTRAL_CASES, QWEN2_CASES, QWEN3_CASES
from tests.goldens._qwen3_5_cases import QWEN3_5_CASES
from tests.goldens._rope_cases import ROPE_CASES as _ROPE_CASES
from tests.goldens._selective_cases import SELECTIVE_CASES
from tests.goldens._sparse_cases import SPARSE_CASES
from tests.goldens._sparse_own_cases import SPARSE_OWN_CASES
from tests.goldens._state_cases import STATE_CASES
from tests.goldens._sublinear_cases import SUBLINEAR_CASES
from tests.goldens._ungated_cases import UNGATED_CASES

__all__ = ["CASES", "ROPE_CASES", "WRITTEN_CASES", "Config", "GoldenCase", "RopeCase", "StoredDType"]

WRITTEN_CASES = (*BERT_DECODER_CASES, *SUBLINEAR_CASES, *NEWER_CASES)
"""Cases of which ``data/shapes.json`` has the keys and shapes."""
CASES: dict[str, GoldenCase] = {
    case.name: case
    for case in (
        *STRUCTURE_CASES,
        *ROPE_SCALING_CASES,
        *MISTRAL_CASES,
        *QWEN2_CASES,
        *QWEN3_CASES,
        *MIXTRAL_CASES,
        *QWEN3_MOE_CASES,
        *DEEPSEEK_V3_CASES,
        *GPT_OSS_CASES,
        *QWEN3_NEXT_CASES,
        *QWEN3_5_CASES,
        *PHI3_CASES,
        *GRANITE_CASES,
        *SMOLLM3_CASES,
        *OLMO2_CASES,
        *GEMMA_CASES,
        *GEMMA_TEXT_CASES,
        *GLM_CASES,
        *STABLELM_CASES,
        *GPT_CASES,
        *STATE_CASES,
        *SPARSE_CASES,
        *SPARSE_OWN_CASES,
        *LLAMA_KIND_CASES,
        *UNGATED_CASES,
        *FURTHER_CASES,
        *FURTHER_SPARSE_CASES,
        *GPT_FAMILY_CASES,
        *FURTHER_KIND_CASES,
        *SELECTIVE_CASES,
        *WRITTEN_CASES,
    )
}
ROPE_CASES: dict[str, RopeCase] = {case.name: case for case in _ROPE_CASES}
