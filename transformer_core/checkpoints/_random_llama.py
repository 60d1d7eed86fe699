"""Hugging Face directories of the Llama family with random weights, for measurements without a download."""

import json
import os
from typing import Final, NamedTuple

from lang_core import DType, InputError, TensorSpec
from transformer_core.checkpoints._random import STANDARD_DEVIATION, write_random_checkpoint

_TORCH_NAMES: Final = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


class LlamaSizes(NamedTuple):
    """Sizes of a Llama: L layers, D, F, N query heads, K key/value heads, V, and the longest sequence."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    positions: int = 2048


LLAMA_PRESETS: Final = {
    "tinyllama-1.1b": LlamaSizes(22, 2048, 5632, 32, 4, 32000),
    "tiny": LlamaSizes(2, 64, 160, 4, 2, 256),
    # https://huggingface.co/meta-llama/Meta-Llama-3-8B: the sizes of its config.json, whose weights are untied too.
    "llama-3-8b": LlamaSizes(32, 4096, 14336, 32, 8, 128256, 8192),
}
"""Sizes of Llama checkpoints with random weights, by name."""


def llama_specs(sizes: LlamaSizes, dtype: DType) -> dict[str, TensorSpec]:
    """Returns the specs of an untied Llama by Hugging Face names; linear weights are ``[output, input]``."""
    hidden, inner = sizes.hidden, sizes.intermediate
    head = hidden // sizes.heads
    kv = sizes.kv_heads * head
    layer = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (sizes.vocabulary, hidden)}
    for number in range(sizes.layers):
        shapes |= {f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (sizes.vocabulary, hidden)}
    return {key: TensorSpec(shape, dtype) for key, shape in shapes.items()}


def llama_config(sizes: LlamaSizes, dtype: DType) -> dict[str, object]:
    """Returns the ``config.json`` that transformers writes for such a model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": sizes.hidden,
        "initializer_range": STANDARD_DEVIATION,
        "intermediate_size": sizes.intermediate,
        "max_position_embeddings": sizes.positions,
        "model_type": "llama",
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "num_key_value_heads": sizes.kv_heads,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": _TORCH_NAMES[dtype.name],
        "transformers_version": "4.35.0",
        "use_cache": True,
        "vocab_size": sizes.vocabulary,
    }


def write_random_llama(
    directory: str | os.PathLike[str], sizes: LlamaSizes, dtype: DType, *, seed: int = 0, shards: int = 1
) -> list[str]:
    """Writes ``config.json`` and random weights, as ``write_random_checkpoint`` does.

    Args:
        directory: directory to write, made if it is absent.
        sizes: sizes of the model.
        dtype: dtype of the weights.
        seed: seed of the weights.
        shards: number of files.

    Returns:
        The paths of the files.

    Raises:
        InputError: the dtype is not f32, f16 or bf16, or a file cannot be written.
    """
    if dtype.name not in _TORCH_NAMES:
        raise InputError(f"random weights are {', '.join(_TORCH_NAMES)}, not {dtype.name}")
    config = json.dumps(llama_config(sizes, dtype), indent=2) + "\n"
    return write_random_checkpoint(directory, config, llama_specs(sizes, dtype), seed=seed, shards=shards)
