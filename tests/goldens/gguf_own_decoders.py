"""Decoders that llama.cpp has and transformers has not, as GGUF files.

What they compute is llama.cpp's (``tests/goldens/make_llama_cpp_goldens.py``). llama.cpp checks the names and shapes of
the tensors when it loads a file; fields are those that its converter writes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGUFWriter

from tests.goldens.gguf_files import Tokenizer
from tests.goldens.weights import unit_values

Shapes = Iterator[tuple[str, tuple[int, ...]]]
V: Final = 83
D: Final = 48
F: Final = 40
N, K, H = 4, 2, 12
L: Final = 3
E: Final = 6
C: Final = 2
X: Final = 20  # F of an expert
_PROMPT: Final = (5, 61, 22, 3, 78, 40, 9, 17, 33)


@dataclass(frozen=True)
class OwnDecoder:
    """Model in a file.

    Attributes:
        architecture: that of its file.
        layer: tensors of a layer.
        fields: metadata, beside those of ``_COMMON``; None takes a field out.
        layers: L.
        vocabulary: V.
        tied: whether the embeddings are the head.
        seed: of the weights.
        biased: whether the last norm has a bias.
    """

    architecture: str
    layer: Callable[[int], Shapes]
    fields: Mapping[str, Any] = field(default_factory=dict)
    layers: int = L
    vocabulary: int = V
    tied: bool = False
    seed: int = 7
    biased: bool = False


_COMMON: Final[dict[str, Any]] = {
    "context_length": 64,
    "embedding_length": D,
    "feed_forward_length": F,
    "attention.head_count": N,
    "attention.head_count_kv": K,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 400.0,
    "rope.dimension_count": H,
}
_COUNTS: Final[dict[str, Any]] = {"expert_count": E, "expert_used_count": C}
_SHARED: Final[dict[str, Any]] = {**_COUNTS, "expert_shared_count": 1, "expert_feed_forward_length": X}


def prompt_of(model: OwnDecoder) -> list[int]:
    """Returns the tokens before the first answer."""
    del model
    return list(_PROMPT)


def _attention(kv: int = K) -> Shapes:
    yield "attn_norm.weight", (D,)
    yield "attn_q.weight", (N * H, D)
    yield "attn_k.weight", (kv * H, D)
    yield "attn_v.weight", (kv * H, D)
    yield "attn_output.weight", (D, N * H)


def _fused() -> Shapes:
    yield "attn_norm.weight", (D,)
    yield "attn_qkv.weight", ((N + 2 * K) * H, D)
    yield "attn_output.weight", (D, N * H)


def _head_norms() -> Shapes:
    yield "attn_q_norm.weight", (H,)
    yield "attn_k_norm.weight", (H,)


def _dense(inner: int = F) -> Shapes:
    yield "ffn_norm.weight", (D,)
    yield "ffn_gate.weight", (inner, D)
    yield "ffn_up.weight", (inner, D)
    yield "ffn_down.weight", (D, inner)


def _experts(inner: int = X) -> Shapes:
    yield "ffn_gate_inp.weight", (E, D)
    yield "ffn_gate_exps.weight", (E, inner, D)
    yield "ffn_up_exps.weight", (E, inner, D)
    yield "ffn_down_exps.weight", (E, D, inner)


def _shared() -> Shapes:
    yield "ffn_norm.weight", (D,)
    yield from _experts()
    yield "ffn_gate_shexp.weight", (X, D)
    yield "ffn_up_shexp.weight", (X, D)
    yield "ffn_down_shexp.weight", (D, X)


def _deepseek(layer: int) -> Shapes:
    yield from _attention()
    yield from _shared() if layer else _dense()


def _deepseek_ocr(layer: int) -> Shapes:
    yield from _attention(N)
    yield from _shared() if layer else _dense()


def _bailing(layer: int) -> Shapes:
    yield from _attention()
    yield from _shared()


def _bailing2(layer: int) -> Shapes:
    yield from _fused()
    yield from _head_norms()
    yield from _shared() if layer else _dense()
    if layer:
        yield "exp_probs_b.bias", (E,)


def _arctic(layer: int) -> Shapes:
    yield from _attention()
    yield from _dense(D)
    yield "ffn_norm_exps.weight", (D,)
    yield from _experts(F)


def _grok(layer: int) -> Shapes:
    yield from _attention()
    yield "attn_output_norm.weight", (D,)
    yield "ffn_norm.weight", (D,)
    yield from _experts()
    yield "post_ffw_norm.weight", (D,)


def _grok2(layer: int) -> Shapes:
    yield from _attention()
    yield "attn_output_norm.weight", (D,)
    yield from _dense()
    yield from _experts()
    yield "post_ffw_norm.weight", (D,)


def _jais(layer: int) -> Shapes:
    for name, shape in {
        "attn_norm": (D,),
        "attn_qkv": (3 * D, D),
        "attn_output": (D, D),
        "ffn_norm": (D,),
        "ffn_gate": (F, D),
        "ffn_up": (F, D),
        "ffn_down": (D, F),
    }.items():
        yield f"{name}.weight", shape
        yield f"{name}.bias", shape[:1]


_HEADS: Final = ((2, 1), (4, 2), (4, 1))
_INNERS: Final = (24, 40, 56)


def _openelm(layer: int) -> Shapes:
    heads, kv_heads = _HEADS[layer]
    yield "attn_norm.weight", (D,)
    yield "attn_qkv.weight", ((heads + 2 * kv_heads) * H, D)
    yield "attn_output.weight", (D, heads * H)
    yield from _head_norms()
    yield from _dense(_INNERS[layer])


def _refact(layer: int) -> Shapes:
    yield from _attention(1)
    yield from _dense()


def _smallthinker(layer: int) -> Shapes:
    yield from _attention()
    yield "ffn_norm.weight", (D,)
    yield from _experts()


def _plamo(layer: int) -> Shapes:
    yield from _attention()
    for name, shape in _dense():
        if name != "ffn_norm.weight":
            yield name, shape


def _plamo3(layer: int) -> Shapes:
    yield from _fused()
    yield from _head_norms()
    yield "post_attention_norm", (D,)
    yield "ffn_norm.weight", (D,)
    yield "ffn_up.weight", (2 * F, D)
    yield "ffn_down.weight", (D, F)
    yield "post_ffw_norm", (D,)


def _step35(layer: int) -> Shapes:
    heads = N if layer == 1 else 6
    yield "attn_norm.weight", (D,)
    yield "attn_q.weight", (heads * H, D)
    yield "attn_k.weight", (K * H, D)
    yield "attn_v.weight", (K * H, D)
    yield "attn_gate.weight", (heads, D)
    yield "attn_output.weight", (D, heads * H)
    yield from _head_norms()
    yield from _shared() if layer else _dense()
    if layer:
        yield "exp_probs_b.bias", (E,)


def _normed(layer: int) -> Shapes:
    yield from _attention()
    yield from _head_norms()
    yield from _dense()


OWN: Final = {
    "deepseek": OwnDecoder(
        "deepseek", _deepseek, {**_SHARED, "leading_dense_block_count": 1, "expert_weights_scale": 1.0}
    ),
    "deepseek2_ocr": OwnDecoder(
        "deepseek2-ocr",
        _deepseek_ocr,
        {
            **_SHARED,
            "attention.head_count_kv": N,
            "rope.freq_base": 10000.0,
            "leading_dense_block_count": 1,
            "expert_weights_scale": 1.0,
        },
    ),
    "bailingmoe": OwnDecoder(
        "bailingmoe", _bailing, {**_SHARED, "expert_weights_norm": True, "expert_weights_scale": 1.0}
    ),
    "bailingmoe2": OwnDecoder(
        "bailingmoe2",
        _bailing2,
        {
            **_SHARED,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "expert_gating_func": 2,
            "leading_dense_block_count": 1,
            "rope.dimension_count": 6,
        },
    ),
    "arctic": OwnDecoder("arctic", _arctic, _COUNTS),
    "grok": OwnDecoder(
        "grok",
        _grok,
        {
            **_COUNTS,
            "expert_feed_forward_length": X,
            "embedding_scale": 3.0,
            "logit_scale": 0.6,
            "attention.output_scale": 0.4,
            "attn_logit_softcapping": 2.0,
            "router_logit_softcapping": 1.5,
        },
    ),
    "grok_dense": OwnDecoder(
        "grok",
        _grok2,
        {
            **_COUNTS,
            "expert_feed_forward_length": X,
            "embedding_scale": 3.0,
            "logit_scale": 0.6,
            "attention.output_scale": 0.4,
            "final_logit_softcapping": 4.0,
        },
    ),
    "jais": OwnDecoder(
        "jais",
        _jais,
        {
            "attention.head_count": 6,
            "attention.head_count_kv": None,
            "attention.layer_norm_rms_epsilon": None,
            "attention.layer_norm_epsilon": 1e-5,
            "attention.max_alibi_bias": 8.0,
            "rope.freq_base": None,
            "rope.dimension_count": None,
        },
        biased=True,
    ),
    "openelm": OwnDecoder(
        "openelm",
        _openelm,
        {
            "attention.head_count": [heads for heads, _ in _HEADS],
            "attention.head_count_kv": [kv_heads for _, kv_heads in _HEADS],
            "attention.key_length": H,
            "attention.value_length": H,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "feed_forward_length": list(_INNERS),
        },
        tied=True,
    ),
    "refact": OwnDecoder("refact", _refact, {"attention.head_count_kv": 1, "rope.dimension_count": None}),
    "smallthinker": OwnDecoder(
        "smallthinker",
        _smallthinker,
        {
            **_COUNTS,
            "expert_feed_forward_length": X,
            "feed_forward_length": X,
            "expert_gating_func": 2,
            "attention.sliding_window": 4096,
        },
        layers=5,
    ),
    "plamo": OwnDecoder("plamo", _plamo),
    "plamo3": OwnDecoder(
        "plamo3",
        _plamo3,
        {
            "attention.key_length": H,
            "attention.value_length": H,
            "attention.sliding_window": 5,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.freq_base_swa": 90.0,
        },
    ),
    "step35": OwnDecoder(
        "step35",
        _step35,
        {
            **_SHARED,
            "attention.head_count": [6, N, 6],
            "attention.key_length": H,
            "attention.value_length": H,
            "attention.sliding_window": 5,
            "attention.sliding_window_pattern": [True, False, True],
            "expert_gating_func": 2,
            "expert_shared_feed_forward_length": X,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.7,
            "rope.freq_base_swa": 90.0,
        },
    ),
    "maincoder": OwnDecoder("maincoder", _normed),
    "hunyuan_vl": OwnDecoder("hunyuan_vl", _normed, {"rope.dimension_sections": [2, 2, 2, 0]}),
}
"""Models by the name of their goldens."""


def write_own_decoder(path: Path, model: OwnDecoder, *, tokenizer: Tokenizer | None = None) -> None:
    """Writes the file of a model."""
    writer = GGUFWriter(path, model.architecture)
    writer.add_block_count(model.layers)
    for name, value in {**_COMMON, **model.fields}.items():
        _add(writer, f"{model.architecture}.{name}", value)
    if tokenizer is not None:
        tokenizer(writer)
    for key, array in own_tensors(model).items():
        writer.add_tensor(key, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def own_tensors(model: OwnDecoder) -> dict[str, np.ndarray]:
    """Returns the tensors of a model's file."""
    return {key: _drawn(key, shape, model.seed) for key, shape in _shapes(model)}


def _shapes(model: OwnDecoder) -> Shapes:
    yield "token_embd.weight", (model.vocabulary, D)
    for layer in range(model.layers):
        for name, shape in model.layer(layer):
            yield f"blk.{layer}.{name}", shape
    yield "output_norm.weight", (D,)
    if model.biased:
        yield "output_norm.bias", (D,)
    if not model.tied:
        yield "output.weight", (model.vocabulary, D)


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)


def _drawn(key: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Draws a tensor: norms around 1, matrices that neither shrink nor grow what they multiply."""
    values = unit_values(key, shape, seed)
    if "norm" in key and not key.endswith(".bias"):
        return np.float32(1) + np.float32(0.5) * values
    if len(shape) == 1:
        return np.float32(0.3) * values
    return values * np.float32(1.0 if key.startswith("token_embd") else (3.0 / shape[-1]) ** 0.5 * 1.3)
