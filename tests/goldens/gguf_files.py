"""Golden cases as GGUF files, made as llama.cpp's convert_hf_to_gguf.py makes them, with the gguf package's writer.

Names of tensors come from the package's own ``TensorNameMap``, packed rows from its quantisers, or ``k_quants.py``.
What the converter does to tensors and metadata is written down here once more, from its source:
``LlamaModel.permute``, Gemma's ``norm + 1``, GPT-2's transposed matrices, stacked experts, ``rope_freqs`` (Llama 3)
and ``rope_factors`` (Phi-3).
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import (
    MODEL_ARCH,
    MODEL_ARCH_NAMES,
    GGMLQuantizationType,
    GGUFWriter,
    get_tensor_name_map,
    quants,
)

from tests.goldens import gguf_further, gguf_sparse
from tests.goldens._case_types import Config, GoldenCase
from tests.goldens._shapes import sizes_of, weight_shapes
from tests.goldens.gguf_deepseek import add_deepseek_fields, deepseek_tensors, gpt_oss_tensors
from tests.goldens.gguf_gemma import GEMMA_LAYERS, add_gemma_layer_fields, gemma_layer_tensors
from tests.goldens.gguf_hybrids import HYBRIDS, add_hybrid_fields, hybrid_tensors
from tests.goldens.gguf_llama_kinds import (
    LAYER_NORMS,
    UNGATED,
    WINDOWS,
    add_activation_numbers,
    add_llama_kind_fields,
    apertus_tensors,
    layer_norm_eps,
    stablelm_tensors,
)
from tests.goldens.gguf_nemotron_h import add_nemotron_h_fields, nemotron_h_name, nemotron_h_tensors
from tests.goldens.gguf_rope import add_rope, rope_of, rope_tensors
from tests.goldens.gguf_selective import SELECTIVE, add_jamba_fields, add_mamba_fields, selective_tensors
from tests.goldens.gguf_states import STATE_KINDS, add_mamba2_fields, add_state_fields, state_tensors
from tests.goldens.k_quants import quantize
from tests.goldens.weights import stored_weights

ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe", "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3",
    "gpt2": "gpt2", "olmo": "olmo", "granite": "granite", "smollm3": "smollm3", "olmo2": "olmo2",
    "gpt_neox": "gptneox", "stablelm": "stablelm", "olmo3": "olmo2", "ministral3": "mistral3", "cohere": "command-r",
    "cohere2": "cohere2", "exaone4": "exaone4", "hunyuan_v1_dense": "hunyuan-dense", "seed_oss": "seed_oss",
    "ernie4_5": "ernie4_5", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm": "chatglm", "glm4": "glm4",
    "gpt_oss": "gpt-oss", "apertus": "apertus", **gguf_sparse.ARCHITECTURES, **HYBRIDS,
    **gguf_further.ARCHITECTURES,
    **SELECTIVE,
    "gemma3n_text": "gemma3n", "gemma4_text": "gemma4", **UNGATED, **STATE_KINDS, "nemotron_h": "nemotron_h",
}  # fmt: skip
_RENAMED = {**gguf_sparse.RENAMED, "deepseek2": deepseek_tensors, "gpt-oss": gpt_oss_tensors}
_RENAMED |= gguf_further.RENAMED
_RENAMED |= dict.fromkeys(SELECTIVE.values(), selective_tensors)
_RENAMED |= dict.fromkeys(HYBRIDS.values(), hybrid_tensors)
_RENAMED |= dict.fromkeys(STATE_KINDS.values(), state_tensors)
_RENAMED |= dict.fromkeys(("nemotron_h", "nemotron_h_moe"), nemotron_h_tensors)
_RENAMED |= {"stablelm": stablelm_tensors, "apertus": apertus_tensors}
_RENAMED |= dict.fromkeys(GEMMA_LAYERS, gemma_layer_tensors)
_PERMUTED = (
    "llama", "olmo", "granite", "smollm3", "mistral3", "arcee", "granitehybrid", "granitemoe", "internlm2", "xverse",
    "minicpm", "deci",
)  # fmt: skip
_EXPERT = re.compile(r"(model\.layers\.\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight")
_EXPERT_NAMES = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}

Tokenizer = Callable[[GGUFWriter], None]
"""Adds the fields of a tokenizer."""
Pack = Callable[[str, tuple[int, ...]], GGMLQuantizationType | None]


def write_gguf(
    path: Path,
    case: GoldenCase,
    *,
    pack: Pack | None = None,
    tokenizer: Tokenizer | None = None,
    tensors_per_file: int = 0,
    stack_experts: bool = True,
    weights: Mapping[str, np.ndarray] | None = None,
    architecture: str = "",
) -> dict[str, np.ndarray]:
    """Writes a case's model.

    Args:
        path: of the new file.
        case: the model.
        pack: the type of a matrix, by its name in the file and its shape; as stored in the checkpoint where None.
        tokenizer: adds the tokenizer's fields; only ids that begin and end sequences where None.
        weights: the checkpoint's; those of the case's seed where None.
        architecture: of the file; that of the case's model type where empty.
        stack_experts: whether all experts of a projection are one tensor; in early files each is one.
        tensors_per_file: the most that a file has, where there are to be several; 0 for one file.

    Returns:
        The tensors in the file, by name: what packed ones unpack to.
    """
    config, name = case.config, architecture or _architecture(case.config)
    writer = GGUFWriter(path, name, split_max_tensors=tensors_per_file)
    _add_fields(writer, config, name)
    (tokenizer or _add_tokens(config))(writer)
    parameters = stored_weights(case) if weights is None else weights
    add_activation_numbers(writer, parameters)
    tensors = {**_converted(parameters, config, name), **rope_tensors(config, name)}
    stored: dict[str, np.ndarray] = {}
    for key, array in (tensors if stack_experts else _unstacked(tensors)).items():
        kind = pack(key, array.shape) if pack and array.ndim > 1 and not key.endswith(".bias") else None
        stored[key] = _add(writer, key, array, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def _architecture(config: Config) -> str:
    return nemotron_h_name(config) if config["model_type"] == "nemotron_h" else ARCHITECTURES[config["model_type"]]


def _add(writer: GGUFWriter, key: str, array: np.ndarray, kind: GGMLQuantizationType | None) -> np.ndarray:
    if array.ndim == 1:
        array = array.astype(np.float32)  # as the converter keeps all vectors
    if kind is not None:
        packed = quantize(array.astype(np.float32), kind)
        writer.add_tensor(key, packed, raw_dtype=kind)
        return quants.dequantize(packed, kind)
    if array.dtype.name == "bfloat16":
        writer.add_tensor(key, array.view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(key, array)
    return array


def _converted(stored: Mapping[str, np.ndarray], config: Config, name: str) -> dict[str, np.ndarray]:
    arch = next(arch for arch, known in MODEL_ARCH_NAMES.items() if known == name)
    layers = sizes_of(config)[0]
    names = get_tensor_name_map(MODEL_ARCH(arch), layers + 1)
    made: dict[str, np.ndarray] = {}
    given = dict(_RENAMED[name](stored, config)) if name in _RENAMED else stored
    for key, array in _stacked(given).items():
        gguf_name = key if key.startswith("blk.") else names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None, key
        made[gguf_name] = _changed(key, array, config, name)
    return made


def _stacked(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Experts of one projection in one tensor, under the key that the converter makes up for it."""
    made: dict[str, Any] = {}
    for key, array in weights.items():
        match = _EXPERT.fullmatch(key)
        if match is None:
            made[key] = array
        else:
            projection = _EXPERT_NAMES.get(match[3], match[3])
            made.setdefault(f"{match[1]}.mlp.experts.{projection}.weight", []).append(array)
    return {key: np.stack(value) if isinstance(value, list) else value for key, value in made.items()}


def _unstacked(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {}
    for key, array in tensors.items():
        stem, stacked, kind = key.partition("_exps")
        made |= {f"{stem}.{index}{kind}": part for index, part in enumerate(array)} if stacked else {key: array}
    return made


def _changed(key: str, array: np.ndarray, config: Config, name: str) -> np.ndarray:
    if name in _PERMUTED and ".self_attn.q_proj." in key:
        return permuted(array, config["num_attention_heads"])
    if name in _PERMUTED and ".self_attn.k_proj." in key:
        return permuted(array, config.get("num_key_value_heads") or config["num_attention_heads"])
    if name in ("gemma", "gemma2", "gemma3", "nemotron") and key.endswith("norm.weight"):
        return array.astype(np.float32) + np.float32(1)
    if ".query_key_value." in key and name == "gptneox":  # head by head; then all queries, all keys, all values
        heads = config["num_attention_heads"]
        parts = array.reshape(heads, 3, array.shape[0] // heads // 3, *array.shape[1:])
        return np.ascontiguousarray(parts.swapaxes(0, 1).reshape(array.shape))
    if name == "gpt2" and key.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return np.ascontiguousarray(array.T)
    return array


def permuted(array: np.ndarray, heads: int) -> np.ndarray:
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))


def _add_tokens(config: Config) -> Callable[[GGUFWriter], None]:
    def add(writer: GGUFWriter) -> None:
        end = config.get("eos_token_id")
        if isinstance(end, int):
            writer.add_eos_token_id(end)
        if isinstance(config.get("bos_token_id"), int):
            writer.add_bos_token_id(config["bos_token_id"])

    return add


def _add_fields(writer: GGUFWriter, config: Config, name: str) -> None:
    layers, hidden, inner, _ = sizes_of(config)
    if name == "mamba2":
        add_mamba2_fields(writer, config)
        return
    if name == "mamba":
        add_mamba_fields(writer, config)
        return
    if name == "dbrx":
        gguf_further.add_dbrx_fields(writer, config)
        return
    if name in gguf_further.GPTS.values():
        gguf_further.add_gpt_fields(writer, config, name)
        return
    if name.startswith("nemotron_h"):
        add_nemotron_h_fields(writer, config, name)
        return
    if name == "lfm2":
        inner = next(shape[0] for key, shape in weight_shapes(config).items() if key.endswith("w1.weight"))
    heads = config["n_head"] if name == "gpt2" else config["num_attention_heads"]
    further = config.get("num_nextn_predict_layers", 0) if name in (*HYBRIDS.values(), "glm4moe") else 0
    writer.add_block_count(layers + further)
    writer.add_embedding_length(hidden)
    if name not in GEMMA_LAYERS:
        writer.add_feed_forward_length(config.get("intermediate_size_mlp", inner))
    writer.add_head_count(heads)
    writer.add_context_length(config["n_positions"] if name == "gpt2" else config["max_position_embeddings"])
    if name == "gpt2":
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        return
    if name in GEMMA_LAYERS:
        add_gemma_layer_fields(writer, config, name)
        return
    if name == "deepseek2":
        add_deepseek_fields(writer, config, rope_of(config))
        return
    if name in STATE_KINDS.values():
        add_state_fields(writer, config, name)
    elif name == "jamba":
        add_jamba_fields(writer, config)
    elif name != "mimo2":
        writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    if name in ("gptneox", "stablelm", *LAYER_NORMS, *gguf_further.LAYER_NORMS):
        writer.add_layer_norm_eps(layer_norm_eps(config))
        if "use_parallel_residual" in config:
            writer.add_parallel_residual(config["use_parallel_residual"])
    else:
        writer.add_layer_norm_rms_eps(config["norm_eps" if name.startswith("lfm2") else "rms_norm_eps"])
    if config.get("head_dim") and name != "minicpm3":
        writer.add_key_length(config["head_dim"])
        if name != "mimo2":
            writer.add_value_length(config["head_dim"])
    add_rope(writer, config, name)
    _add_experts(writer, config)
    add_llama_kind_fields(writer, config, name, rope_of(config))
    gguf_sparse.add_sparse_fields(writer, config, name)
    gguf_further.add_further_fields(writer, config, name)
    add_hybrid_fields(writer, config, name)
    window = config.get("sliding_window")
    if window and (
        name in ("gemma2", "gemma3", "phi3", "gpt-oss", *WINDOWS) or config["model_type"] in ("mistral", "mixtral")
    ):
        writer.add_sliding_window(window)
    if name == "gemma3" and "layer_types" in config:
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    for key, add in {
        "attn_logit_softcapping": writer.add_attn_logit_softcapping,
        "final_logit_softcapping": writer.add_final_logit_softcapping,
        "attention_multiplier": writer.add_attention_scale,
        "embedding_multiplier": writer.add_embedding_scale,
        "residual_multiplier": writer.add_residual_scale,
        "logits_scaling": writer.add_logit_scale,
    }.items():
        if config.get(key) and name != "falcon-h1":  # which has them in its weights
            add(config[key])


def _add_experts(writer: GGUFWriter, config: Config) -> None:
    count = config.get("num_local_experts") or config.get("num_experts")
    if count:
        chosen = config.get("num_experts_per_tok") or config["moe_topk"]
        writer.add_expert_count(count if isinstance(count, int) else count[0])  # a number, or one for each layer
        writer.add_expert_used_count(chosen if isinstance(chosen, int) else chosen[0])
    if config["model_type"] == "gpt_oss":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if config.get("moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
