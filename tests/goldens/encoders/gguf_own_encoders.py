"""Encoders of texts that llama.cpp has and transformers has not, as GGUF files under the names of their authors.

What they compute is llama.cpp's (``tests/goldens/make_llama_cpp_goldens.py``). Names of tensors in the files come from
the ``gguf`` package, fields and shapes from its converter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFWriter, PoolingType, get_tensor_name_map

from tests.goldens.encoders.files import random_encoder_weights
from tests.goldens.gguf_files import Tokenizer

Shapes = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class OwnEncoder:
    """Sizes of a tiny encoder.

    Attributes:
        architecture: that of its file.
        hidden: D.
        inner: F.
        heads: N.
        layers: L.
        vocabulary: V.
        experts: E, in every other layer; none where 0.
        chosen: experts of a token.
        seed: of the weights.
        lengths: tokens of each text.
    """

    architecture: str
    hidden: int = 48
    inner: int = 40
    heads: int = 4
    layers: int = 4
    vocabulary: int = 77
    experts: int = 0
    chosen: int = 0
    seed: int = 91
    lengths: tuple[int, ...] = (9, 14, 1)


OWN: Final = {
    "nomic_bert_moe": OwnEncoder("nomic-bert-moe", experts=5, chosen=2),
    "jina_bert_v2": OwnEncoder("jina-bert-v2", heads=6, layers=3, seed=92),
}
"""Models by the name of their goldens."""
_EPS: Final = 1e-5
_BASE: Final = 500.0


def texts_of(model: OwnEncoder) -> list[list[int]]:
    """Returns texts of the model's tokens."""
    rng = np.random.default_rng(model.seed)
    return [rng.integers(0, model.vocabulary, length).tolist() for length in model.lengths]


def write_own_gguf(path: Path, model: OwnEncoder, *, tokenizer: Tokenizer | None = None) -> None:
    """Writes the file of a model."""
    writer = GGUFWriter(path, model.architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(model.hidden)
    writer.add_feed_forward_length(model.inner)
    writer.add_block_count(model.layers)
    writer.add_head_count(model.heads)
    writer.add_layer_norm_eps(_EPS)
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.MEAN)
    writer.add_uint32("tokenizer.ggml.token_type_count", 1 if model.experts else 2)
    if model.experts:
        writer.add_rope_freq_base(_BASE)
        writer.add_expert_count(model.experts)
        writer.add_expert_used_count(model.chosen)
        writer.add_moe_every_n_layers(2)
    if tokenizer is not None:
        tokenizer(writer)
    arch = next(arch for arch, known in MODEL_ARCH_NAMES.items() if known == model.architecture)
    names = get_tensor_name_map(MODEL_ARCH(arch), model.layers)
    for key, array in random_encoder_weights(dict(_SHAPES[model.architecture](model)), model.seed).items():
        stored = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert stored is not None, key
        # What experts add is to be seen behind norms.
        writer.add_tensor(stored, array * np.float32(np.sqrt(3.0 * array.shape[1])) if array.ndim > 2 else array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _nomic_shapes(model: OwnEncoder) -> Shapes:
    """Yields tensors as the converter of Nomic Embed 2 hands them on: experts in one, down projections turned."""
    d, f = model.hidden, model.inner
    yield "embeddings.word_embeddings.weight", (model.vocabulary, d)
    yield "embeddings.token_type_embeddings.weight", (1, d)
    yield from _biased("emb_ln", (d,))
    for layer in range(model.layers):
        prefix = f"encoder.layers.{layer}."
        yield from _biased(f"{prefix}attn.Wqkv", (3 * d, d))
        yield from _biased(f"{prefix}attn.out_proj", (d, d))
        yield from _biased(f"{prefix}norm1", (d,))
        yield from _biased(f"{prefix}norm2", (d,))
        if layer % 2:
            yield f"{prefix}mlp.router.layer.weight", (model.experts, d)
            yield f"{prefix}mlp.experts.mlp.w1.weight", (model.experts, f, d)
            yield f"{prefix}mlp.experts.mlp.w2.weight", (model.experts, d, f)
        else:
            yield from _biased(f"{prefix}mlp.fc1", (f, d))
            yield from _biased(f"{prefix}mlp.fc2", (d, f))


def _jina_shapes(model: OwnEncoder) -> Shapes:
    """Yields tensors of Jina embeddings 2: a gate above its projection, and a bias behind both."""
    d, f = model.hidden, model.inner
    yield "embeddings.word_embeddings.weight", (model.vocabulary, d)
    yield "embeddings.token_type_embeddings.weight", (2, d)
    yield from _biased("embeddings.LayerNorm", (d,))
    for layer in range(model.layers):
        prefix = f"encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            yield from _biased(f"{prefix}attention.self.{part}", (d, d))
        yield from _biased(f"{prefix}attention.output.dense", (d, d))
        yield from _biased(f"{prefix}attention.output.LayerNorm", (d,))
        yield f"{prefix}mlp.gated_layers.weight", (2 * f, d)
        yield from _biased(f"{prefix}mlp.wo", (d, f))
        yield from _biased(f"{prefix}mlp.layernorm", (d,))


def _biased(name: str, shape: tuple[int, ...]) -> Shapes:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


_SHAPES: Final = {"nomic-bert-moe": _nomic_shapes, "jina-bert-v2": _jina_shapes}
