"""Encoders of texts as GGUF files, made as llama.cpp's converter makes them, with the gguf package's writer."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFWriter, PoolingType, get_tensor_name_map

from tests.goldens.encoders.cases import EncoderCase
from tests.goldens.encoders.files import encoder_weights
from tests.goldens.gguf_files import Tokenizer, permuted

ARCHITECTURES = {
    "bert": "bert", "roberta": "bert", "xlm-roberta": "bert", "nomic_bert": "nomic-bert",
    "gemma3_text": "gemma-embedding", "qwen3": "qwen3", "modernbert": "modern-bert",
    "jina_embeddings_v3": "jina-bert-v3", "eurobert": "eurobert",
}  # fmt: skip
OTHER_FILES = {"llama_embed": ("llama-embed", "eurobert_sentence")}
"""Files of architectures that transformers has no model type of, with the case that computes the same."""
GGUF_ENCODERS = (
    "bert_sentence",
    "xlm_roberta_sentence",
    "nomic_bert_sentence",
    "qwen3_sentence",
    "modernbert_plain_sentence",
    "jina_v3_sentence",
    "eurobert_sentence",
)
"""Cases whose files say all that their checkpoints say."""
GGUF_RERANKERS = ("xlm_roberta_classifier", "modernbert_classifier", "qwen3_reranker")
"""Cases that give a score, or classes, to a text."""
_POOLING = {"mean": PoolingType.MEAN, "cls": PoolingType.CLS, "lasttoken": PoolingType.LAST, "": PoolingType.RANK}
_OWN_NAMES = ("bert", "jina-bert-v3", "eurobert", "llama-embed")
_CLASSES = {f"classifier.{kind}": f"classifier.out_proj.{kind}" for kind in ("weight", "bias")}
_PERMUTED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
_FROM_PADDING = ("roberta", "xlm-roberta")


def write_encoder_gguf(
    path: Path,
    case: EncoderCase,
    *,
    name: str = "",
    tokenizer: Tokenizer | None = None,
    pooling: PoolingType | None = None,
) -> None:
    """Writes a case's model.

    Args:
        path: path of the new file.
        case: model.
        name: architecture of the file, where it is not that of the case's model type.
        tokenizer: adds the tokenizer's fields.
        pooling: pooling, where it is not the case's.
    """
    config, name = case.config, name or ARCHITECTURES[case.config["model_type"]]
    writer = GGUFWriter(path, name)
    _add_fields(writer, config, name)
    if case.score:
        writer.add_classifier_output_labels(["yes", "no"])
    writer.add_pooling_type(_POOLING[case.pooling] if pooling is None else pooling)
    if tokenizer is not None:
        tokenizer(writer)
    for key, array in _converted(case, name):
        writer.add_tensor(key, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _converted(case: EncoderCase, name: str) -> Iterator[tuple[str, np.ndarray]]:
    arch = next(arch for arch, known in MODEL_ARCH_NAMES.items() if known == name)
    names = get_tensor_name_map(MODEL_ARCH(arch), case.config["num_hidden_layers"])
    for key, array in _renamed(encoder_weights(case), case.config, name):
        if key.startswith("pooler.") or (key.startswith("dense_") and key.endswith(".bias")):
            continue
        if case.score and key == "lm_head.weight":
            yield "cls.output.weight", array[list(case.score)]
            continue
        stored = key if key.startswith("dense_") else names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert stored is not None, key
        if name == "gemma-embedding" and key.endswith("norm.weight"):
            array = array + np.float32(1)
        heads = case.config[_PERMUTED[module]] if (module := key.split(".")[-2]) in _PERMUTED else 0
        yield stored, permuted(array, heads) if name == "llama-embed" and heads else array


def _renamed(
    weights: Mapping[str, np.ndarray], config: Mapping[str, Any], name: str
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields tensors under names that the converter knows: fused, cut, or of the form that was published."""
    for stored, array in weights.items():
        key = _CLASSES.get(stored, stored).removeprefix("roberta.").removeprefix("bert.")
        if key == "embeddings.position_embeddings.weight":
            yield key, np.ascontiguousarray(array[_first_position(config) :])
        elif "_Dense.linear." in key:
            yield f"dense_{key[0]}.{key.rpartition('.')[2]}", array
        elif name == "modern-bert":
            yield key.removeprefix("model."), array
        elif name != "nomic-bert":
            yield (key if name in _OWN_NAMES or key.startswith(("model.", "lm_head.")) else f"model.{key}"), array
        elif ".self_attn.q_proj." in key:
            parts = [weights[key.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            yield _published(key.replace("q_proj", "Wqkv")), np.concatenate(parts)
        elif ".self_attn.k_proj." not in key and ".self_attn.v_proj." not in key:
            yield _published(key), array


def _first_position(config: Mapping[str, Any]) -> int:
    """Returns the row of the first token's position, from which on they are stored."""
    return config.get("pad_token_id", 1) + 1 if config["model_type"] in _FROM_PADDING else 0


def _published(key: str) -> str:
    """Returns the key of a Nomic-BERT's tensor in the form that its authors published."""
    for ours, theirs in {
        "embeddings.LayerNorm": "emb_ln",
        "self_attn.Wqkv": "attn.Wqkv",
        "self_attn.o_proj": "attn.out_proj",
        "mlp.up_proj": "mlp.fc11",
        "mlp.gate_proj": "mlp.fc12",
        "mlp.down_proj": "mlp.fc2",
        "post_attention_layernorm": "norm1",
        "post_mlp_layernorm": "norm2",
    }.items():
        key = key.replace(ours, theirs)
    return key if key.startswith(("e", "pooler")) else f"encoder.{key}"


def _add_fields(writer: GGUFWriter, config: Mapping[str, Any], name: str) -> None:
    writer.add_context_length(config["max_position_embeddings"] - _first_position(config))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    if name in ("bert", "nomic-bert", "jina-bert-v3"):
        writer.add_layer_norm_eps(config["layer_norm_eps"])
        writer.add_causal_attention(False)
        writer.add_uint32("tokenizer.ggml.token_type_count", config.get("type_vocab_size", 2))
    elif name == "modern-bert":
        writer.add_layer_norm_eps(config["norm_eps"])
        writer.add_causal_attention(False)
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        head_size = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)
        writer.add_causal_attention(name == "qwen3")
    _add_rope(writer, config, name)
    if "id2label" in config:
        writer.add_classifier_output_labels([*config["id2label"].values()])
    if "classifier_pooling" in config:
        modes = {"mean": PoolingType.MEAN, "cls": PoolingType.CLS}
        writer.add_uint32(f"{name}.classifier.pooling_type", modes[config["classifier_pooling"]])


def _add_rope(writer: GGUFWriter, config: Mapping[str, Any], name: str) -> None:
    ropes = config.get("rope_parameters") or {}
    if "sliding_attention" in ropes:
        slides = [kind == "sliding_attention" for kind in config["layer_types"]]
        writer.add_sliding_window(config["local_attention" if name == "modern-bert" else "sliding_window"])
        writer.add_sliding_window_pattern(_every(slides) if name == "modern-bert" else slides)
        writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
        ropes = ropes["full_attention"]
    if ropes:
        writer.add_rope_freq_base(ropes["rope_theta"])


def _every(slides: list[bool]) -> int | list[bool]:
    """Returns the distance of a ModernBERT's layers that see all tokens; the list where they have none."""
    fits = (every for every in range(1, len(slides) + 1) if slides == [bool(i % every) for i in range(len(slides))])
    return next(fits, slides)
