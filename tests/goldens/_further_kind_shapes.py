"""Keys and shapes of InternLM3, HyperCLOVA X, nanochat, FlexOlmo, K-EXAONE, AFMoE, MiniCPM3 and BitNet."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.goldens._case_types import Config
from tests.goldens._sparse_shapes import (
    latent_attention,
    projections,
    sparse_attention,
    sparse_experts,
    sparse_feed_forward,
    sparse_model,
)

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _dense(config: Config, layer: int, prefix: str) -> Shapes:
    del layer
    biased = config.get("mlp_bias", False)
    yield from projections(prefix + "mlp.", config["hidden_size"], config["intermediate_size"], biased=biased)


def _attention(config: Config, prefix: str) -> Shapes:
    return sparse_attention(config, prefix, "qkvo" if config.get("attention_bias") else "")


def _llama(config: Config) -> Shapes:
    return sparse_model(config, _attention, _dense)


def _with_norms(shapes: Shapes, before: str, names: dict[str, int]) -> Shapes:
    """Yields the keys, and further norms after that of each layer that ends with ``before``."""
    for key, shape in shapes:
        yield key, shape
        if key.endswith(before):
            for name, size in names.items():
                yield key.removesuffix(before) + name, (size,)


def _hyperclovax(config: Config) -> Shapes:
    d = config["hidden_size"]
    norms = {"post_norm1.weight": d, "post_norm2.weight": d}
    return _with_norms(_llama(config), "post_attention_layernorm.weight", norms)


def _bitnet(config: Config) -> Shapes:
    shapes = _with_norms(
        _llama(config), "self_attn.o_proj.weight", {"self_attn.attn_sub_norm.weight": config["hidden_size"]}
    )
    return _with_norms(shapes, "mlp.down_proj.weight", {"mlp.ffn_sub_norm.weight": config["intermediate_size"]})


def _nanochat(config: Config) -> Shapes:
    d, f = config["hidden_size"], config["intermediate_size"]

    def up_and_down(config: Config, layer: int, prefix: str) -> Shapes:
        yield prefix + "mlp.fc1.weight", (f, d)
        yield prefix + "mlp.fc2.weight", (d, f)

    return ((key, shape) for key, shape in sparse_model(config, _attention, up_and_down) if "norm" not in key)


def _flex_olmo(config: Config) -> Shapes:
    def experts(config: Config, layer: int, prefix: str) -> Shapes:
        yield from sparse_experts(
            prefix + "mlp.", config["num_experts"], config["hidden_size"], config["intermediate_size"]
        )

    for key, shape in sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, "", "whole"), experts):
        yield (
            key.replace("post_attention_layernorm", "post_feedforward_layernorm").replace(
                "input_layernorm", "post_attention_layernorm"
            ),
            shape,
        )


def _exaone_moe(config: Config) -> Shapes:
    deep = {"n_routed_experts": config["num_experts"], "n_shared_experts": config["num_shared_experts"], **config}
    shapes = sparse_model(deep, lambda c, prefix: sparse_attention(c, prefix, "", "head"), sparse_feed_forward)
    for key, shape in shapes:
        yield key.replace("mlp.gate.e_score", "mlp.e_score"), shape


def _afmoe(config: Config) -> Shapes:
    d, n, h = config["hidden_size"], config["num_attention_heads"], config["head_dim"]
    deep = {
        "n_routed_experts": config["num_experts"],
        "n_shared_experts": config["num_shared_experts"],
        "first_k_dense_replace": config["num_dense_layers"],
        **config,
    }

    def attention(config: Config, prefix: str) -> Shapes:
        yield from sparse_attention(config, prefix, "", "head")
        yield prefix + "gate_proj.weight", (n * h, d)

    renamed = {"mlp.gate.e_score_correction_bias": "mlp.expert_bias", "mlp.gate.": "mlp.router.gate."}
    norms = {"pre_mlp_layernorm.weight": d, "post_mlp_layernorm.weight": d}
    shapes = sparse_model(deep, attention, sparse_feed_forward)
    for key, shape in _with_norms(shapes, "post_attention_layernorm.weight", norms):
        for part, stored in renamed.items():
            key = key.replace(part, stored)
        yield key, shape


FURTHER_KIND_SHAPES: Final[dict[str, Callable[[Config], Shapes]]] = {
    "internlm3": _llama,
    "iquestcoder": _llama,
    "hyperclovax": _hyperclovax,
    "nanochat": _nanochat,
    "flex_olmo": _flex_olmo,
    "exaone_moe": _exaone_moe,
    "afmoe": _afmoe,
    "minicpm3": lambda config: sparse_model(config, latent_attention, _dense),
    "youtu": lambda config: sparse_model(config, latent_attention, _dense),
    "bitnet": _bitnet,
}
