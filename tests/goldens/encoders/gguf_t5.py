"""T5s as GGUF files, made as llama.cpp's converter makes them, with the gguf package's writer."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter, get_tensor_name_map

from tests.goldens.encoders._case_types import EncoderCase
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.encoders.files import encoder_weights
from tests.goldens.gguf_files import Tokenizer

NAMES = ("t5", "t5encoder")
_LONGEST = 128  # files do not say it


def _of_files(name: str) -> EncoderCase:
    """Returns a case with the one distance that files can have; llama.cpp has no decoder that is the deeper one."""
    case = ENCODER_CASES[name]
    layers = min(case.config["num_layers"], case.config["num_decoder_layers"])
    changes = {"relative_attention_max_distance": _LONGEST, "num_decoder_layers": layers}
    return dataclasses.replace(case, config={**case.config, **changes})


GGUF_T5S = {name: _of_files(name) for name in ("t5", "t5_gated", "t5_sentence")}
"""Cases of T5s that files can store; the last is an encoder alone."""

ANSWERED = ("t5", "t5_gated")


def write_t5_gguf(
    path: Path,
    case: EncoderCase,
    *,
    tokenizer: Tokenizer | None = None,
    decoder_layers: int | None = None,
    more: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> None:
    """Writes a case's model, with ``more`` tensors; a file may name another number of layers than it has."""
    config, whole = case.config, case.architecture == "T5ForConditionalGeneration"
    writer = GGUFWriter(path, NAMES[0 if whole else 1])
    writer.add_context_length(512)
    writer.add_embedding_length(config["d_model"])
    writer.add_feed_forward_length(config["d_ff"])
    writer.add_block_count(config["num_layers"])
    writer.add_head_count(config["num_heads"])
    writer.add_key_length(config["d_kv"])
    writer.add_value_length(config["d_kv"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_relative_attn_buckets_count(config["relative_attention_num_buckets"])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    if whole:
        writer.add_decoder_start_token_id(config["decoder_start_token_id"])
        writer.add_decoder_block_count(decoder_layers or config["num_decoder_layers"])
    if tokenizer is not None:
        tokenizer(writer)
    arch = MODEL_ARCH.T5 if whole else MODEL_ARCH.T5ENCODER
    names = get_tensor_name_map(arch, max(config["num_layers"], config["num_decoder_layers"]))
    for key, array in encoder_weights(case).items():
        stored = names.get_name(key, try_suffixes=(".weight",))
        if stored is not None:
            writer.add_tensor(stored, array)
    for stored, array in more.items():
        writer.add_tensor(stored, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
