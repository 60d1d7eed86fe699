"""Keys and shapes of further families of Llama's kind, dense and with experts."""

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

_LAYER_NORMS: Final = {
    "olmo": (),
    "apertus": ("attention_layernorm", "feedforward_layernorm"),
    "vaultgemma": ("input_layernorm", "pre_feedforward_layernorm"),
}
_USUAL: Final = ("input_layernorm", "post_attention_layernorm")
_NORMED: Final = {"olmoe": "whole", "dots1": "head", "apertus": "head"}


def _shapes(config: Config) -> Shapes:
    family, d, v = config["model_type"], config["hidden_size"], config["vocab_size"]
    norms, biased = _LAYER_NORMS.get(family, _USUAL), "qkvo" if config.get("attention_bias") else ""
    yield "model.embed_tokens.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name in norms:
            yield f"{prefix}{name}.weight", (d,)
        yield from sparse_attention(config, prefix + "self_attn.", biased, _NORMED.get(family, ""))
        yield from _feed_forward(config, layer, prefix)
    if norms:
        yield "model.norm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


def _feed_forward(config: Config, layer: int, prefix: str) -> Shapes:
    family, d, f = config["model_type"], config["hidden_size"], config["intermediate_size"]
    if family == "dots1":
        yield from sparse_feed_forward(config, layer, prefix)
    elif family == "olmoe":
        yield from sparse_experts(prefix + "mlp.", config["num_experts"], d, f)
    elif family == "apertus":
        yield prefix + "mlp.up_proj.weight", (f, d)
        yield prefix + "mlp.down_proj.weight", (d, f)
        for name, shape in (("alpha_p", (1,)), ("alpha_n", (1,)), ("beta", ()), ("eps", ())):
            yield f"{prefix}mlp.act_fn.{name}", shape
    else:
        yield from projections(prefix + "mlp.", d, f)


def _jais2(config: Config) -> Shapes:
    for key, shape in sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, "qkvo"), _up_and_down):
        yield key, shape
        if key.endswith(("norm.weight", "up_proj.weight", "down_proj.weight")):
            yield key.replace(".weight", ".bias"), shape[:1]


def _up_and_down(config: Config, layer: int, prefix: str) -> Shapes:
    del layer
    d, f = config["hidden_size"], config["intermediate_size"]
    yield prefix + "mlp.up_proj.weight", (f, d)
    yield prefix + "mlp.down_proj.weight", (d, f)


def _granite_moe(config: Config, layer: int, prefix: str) -> Shapes:
    del layer
    d, f, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    yield prefix + "block_sparse_moe.input_linear.weight", (experts, 2 * f, d)
    yield prefix + "block_sparse_moe.output_linear.weight", (experts, d, f)
    yield prefix + "block_sparse_moe.router.layer.weight", (experts, d)
    if shared := config.get("shared_intermediate_size"):
        yield prefix + "shared_mlp.input_linear.weight", (2 * shared, d)
        yield prefix + "shared_mlp.output_linear.weight", (d, shared)


def _granite_moe_shapes(config: Config) -> Shapes:
    biased = "qkvo" if config.get("attention_bias") else ""
    return sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, biased), _granite_moe)


def _hunyuan_moe_shapes(config: Config) -> Shapes:
    biased = "qkvo" if config.get("attention_bias") else ""
    renamed = {"q_norm": "query_layernorm", "k_norm": "key_layernorm", ".gate.": ".gate.wg."}
    for key, shape in sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, biased, "head"), _hunyuan_moe):
        for part, stored in renamed.items():
            key = key.replace(part, stored)
        yield key, shape


def _hunyuan_moe(config: Config, layer: int, prefix: str) -> Shapes:
    del layer
    d, f, experts = config["hidden_size"], config["intermediate_size"], config["num_experts"]
    yield from sparse_experts(prefix + "mlp.", experts, d, f)
    yield from projections(prefix + "mlp.shared_mlp.", d, f)


def _glm4_moe_lite(config: Config, layer: int, prefix: str) -> Shapes:
    dense = layer + 1 if config["mlp_layer_types"][layer] == "dense" else 0
    return sparse_feed_forward({**config, "first_k_dense_replace": dense}, layer, prefix)


def _solar_open(config: Config) -> Shapes:
    config = {**config, "first_k_dense_replace": 0}
    biased = "qkv" if config.get("attention_bias") else ""
    return sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, biased), sparse_feed_forward)


FURTHER_SHAPES: Final[dict[str, Callable[[Config], Shapes]]] = {
    **dict.fromkeys(("olmo", "olmoe", "dots1", "cwm", "apertus", "ministral", "vaultgemma"), _shapes),
    "jais2": _jais2,
    **dict.fromkeys(("granitemoe", "granitemoeshared"), _granite_moe_shapes),
    "hunyuan_v1_moe": _hunyuan_moe_shapes,
    "glm4_moe_lite": lambda config: sparse_model(config, latent_attention, _glm4_moe_lite),
    "solar_open": _solar_open,
}
