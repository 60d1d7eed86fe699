"""Not measured: writes a Llama checkpoint as a GGUF file whose matrices are all of one type, for a peer.

Names come from the ``gguf`` package, packed rows from its quantisers. One tensor is in memory at a time.
"""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import (
    GGML_QUANT_SIZES,
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFWriter,
    LlamaFileType,
    TokenType,
    get_tensor_name_map,
    quants,
)

from lang_core import ENCODINGS, Encoding, TensorSpec, quantizable
from tools.benching.jobs._measure import serve
from transformer_core.checkpoints import SafetensorsCheckpoint

_F32: Final = GGMLQuantizationType.F32
# Of these llama.cpp wants pairs of neighbours where Hugging Face's checkpoints have halves, to be turned by RoPE.
_TURNED: Final = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}
_EMBEDDING: Final = "token_embd.weight"
_LEAST_WITH_BYTES: Final = 1024
_DRAWN_SCALE: Final = 2.0**-12


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Writes the file; gives the bytes of the weights that a step reads: of the embedding table one row alone.

    Args:
        arguments: ``checkpoint`` (an untied Llama), ``output``, ``type`` (such as ``F16`` or ``Q8_0``), and ``words``:
            whether the file has a tokenizer, of made words, for servers that write text.
    """
    directory, kind = Path(arguments["checkpoint"]), GGMLQuantizationType[arguments["type"]]
    config: dict[str, Any] = json.loads((directory / "config.json").read_text())
    source = SafetensorsCheckpoint(directory)
    names = _names(source, config["num_hidden_layers"])
    writer = GGUFWriter(arguments["output"], "llama")
    _add_fields(writer, config, arguments["type"])
    if arguments.get("words"):
        _add_words(writer, config["vocab_size"])
    else:
        writer.add_tokenizer_model("no_vocab")  # prompts are ids
    sizes = {name: _announce(writer, name, source.spec(key), kind) for key, name in names.items()}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for key in names:
        writer.write_tensor_data(_packed(_turned(key, source.read(key), config), kind))
    writer.close()
    source.close()
    return {"step_bytes": sum(sizes.values()) - sizes[_EMBEDDING]}


def _names(source: SafetensorsCheckpoint, layers: int) -> dict[str, str]:
    known = get_tensor_name_map(MODEL_ARCH.LLAMA, layers)
    names = {key: known.get_name(key, try_suffixes=(".weight",)) for key in source.keys()}  # noqa: SIM118
    return {key: name for key, name in names.items() if name is not None}


def _announce(writer: GGUFWriter, name: str, spec: TensorSpec, kind: GGMLQuantizationType) -> int:
    stored = _F32 if spec.ndim == 1 else kind
    block, size = GGML_QUANT_SIZES[stored]
    nbytes = spec.size // block * size
    writer.add_tensor_info(name, spec.shape, np.dtype(np.float32), nbytes, raw_dtype=stored)  # the type is what counts
    return nbytes


def _packed(array: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    if array.ndim > 1 and kind.name.lower() not in (*quantizable(), "f32", "f16", "bf16"):
        return _drawn(array.shape, ENCODINGS[kind.name.lower()])
    packed = quants.quantize(array.astype(np.float32), _F32 if array.ndim == 1 else kind)
    return np.ascontiguousarray(packed).view(np.uint8)


def _drawn(shape: tuple[int, ...], encoding: Encoding) -> np.ndarray:
    """Returns blocks of any integers with small scales: nothing quantises to these, and speed is the same."""
    rows, columns = shape
    rng = np.random.default_rng(rows)
    blocks = rng.integers(0, 256, (rows, columns // encoding.block, encoding.block_bytes), np.uint8)
    for place in encoding.layout.halves:
        blocks[..., place : place + 2] = np.array([_DRAWN_SCALE], np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


def _turned(key: str, array: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    heads = next((config[field] for part, field in _TURNED.items() if f".{part}." in key), None)
    if heads is None:
        return array
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, array.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)


def _add_fields(writer: GGUFWriter, config: dict[str, Any], kind: str) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(_FILE_TYPES[kind])


def _add_words(writer: GGUFWriter, size: int) -> None:
    """A vocabulary of words that differ; what a model of random weights says has no meaning anyway."""
    first = ["<unk>", "<s>", "</s>"]
    spelled = [f"<0x{byte:02X}>" for byte in range(256)] if size >= _LEAST_WITH_BYTES else []
    words = [f"▁w{index:x}" for index in range(size - len(first) - len(spelled))]
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * len(spelled)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*first, *spelled, *words])
    writer.add_token_scores([-float(index) for index in range(size)])
    writer.add_token_types([*kinds, *[TokenType.NORMAL] * len(words)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


_FILE_TYPES: Final = {
    "F32": LlamaFileType.ALL_F32,
    "F16": LlamaFileType.MOSTLY_F16,
    "BF16": LlamaFileType.MOSTLY_BF16,
    "Q8_0": LlamaFileType.MOSTLY_Q8_0,
    "Q4_0": LlamaFileType.MOSTLY_Q4_0,
    "Q4_1": LlamaFileType.MOSTLY_Q4_1,
    "Q5_0": LlamaFileType.MOSTLY_Q5_0,
    "Q5_1": LlamaFileType.MOSTLY_Q5_1,
    "Q2_K": LlamaFileType.MOSTLY_Q2_K,
    "Q3_K": LlamaFileType.MOSTLY_Q3_K_M,
    "Q4_K": LlamaFileType.MOSTLY_Q4_K_M,
    "Q5_K": LlamaFileType.MOSTLY_Q5_K_M,
    "Q6_K": LlamaFileType.MOSTLY_Q6_K,
    "IQ4_NL": LlamaFileType.MOSTLY_IQ4_NL,
    "IQ4_XS": LlamaFileType.MOSTLY_IQ4_XS,
    "MXFP4": LlamaFileType.MOSTLY_MXFP4_MOE,
}


if __name__ == "__main__":
    serve(run)
