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


def _granite_swa(config: Config) -> Shapes:
    """Yields sinks beside attention; experts are stored as transformers 5 has them."""
    n, d, f = config["num_attention_heads"], config["hidden_size"], config["intermediate_size"]

    def attention(config: Config, prefix: str) -> Shapes:
        yield from _attention(config, prefix)
        yield prefix + "sinks", (n,)

    def experts(config: Config, layer: int, prefix: str) -> Shapes:
        if "num_local_experts" not in config:
            yield from _dense(config, layer, prefix)
            return
        count, shared = config["num_local_experts"], config["shared_intermediate_size"]
        yield prefix + "block_sparse_moe.router.weight", (count, d)
        yield prefix + "block_sparse_moe.experts.gate_up_proj", (count, 2 * f, d)
        yield prefix + "block_sparse_moe.experts.down_proj", (count, d, f)
        yield prefix + "shared_mlp.input_linear.weight", (2 * shared, d)
        yield prefix + "shared_mlp.output_linear.weight", (d, shared)

    return sparse_model(config, attention, experts)


def _mellum(config: Config) -> Shapes:
    def experts(config: Config, layer: int, prefix: str) -> Shapes:
        if config["mlp_layer_types"][layer] == "dense":
            yield from _dense(config, layer, prefix)
            return
        yield from sparse_experts(
            prefix + "mlp.", config["num_local_experts"], config["hidden_size"], config["moe_intermediate_size"]
        )

    return sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, "", "head"), experts)


def _hy_v3(config: Config) -> Shapes:
    deep = {"n_routed_experts": config["num_experts"], "n_shared_experts": config["num_shared_experts"], **config}
    deep["first_k_dense_replace"] = 1
    renamed = {
        "mlp.gate.weight": "mlp.router.gate.weight",
        "mlp.gate.e_score_correction_bias": "mlp.expert_bias",
        "shared_experts": "shared_mlp",
    }
    shapes = sparse_model(deep, lambda c, prefix: sparse_attention(c, prefix, "", "head"), sparse_feed_forward)
    for key, shape in shapes:
        for part, stored in renamed.items():
            key = key.replace(part, stored)
        yield key, shape


def _dbrx(config: Config) -> Shapes:
    attention, feed = config["attn_config"], config["ffn_config"]
    d, f, experts = config["d_model"], feed["ffn_hidden_size"], feed["moe_num_experts"]
    yield "transformer.wte.weight", (config["vocab_size"], d)
    for layer in range(config["n_layers"]):
        prefix = f"transformer.blocks.{layer}."
        for norm in ("norm_1", "norm_2"):
            yield f"{prefix}norm_attn_norm.{norm}.weight", (d,)
        rows = d + 2 * attention["kv_n_heads"] * d // config["n_heads"]
        yield prefix + "norm_attn_norm.attn.Wqkv.weight", (rows, d)
        yield prefix + "norm_attn_norm.attn.out_proj.weight", (d, d)
        yield prefix + "ffn.router.layer.weight", (experts, d)
        for name in ("w1", "v1", "w2"):
            yield f"{prefix}ffn.experts.mlp.{name}", (experts * f, d)
    yield "transformer.norm_f.weight", (d,)
    yield "lm_head.weight", (config["vocab_size"], d)


def _mimo_v2_flash(config: Config) -> Shapes:
    d, n, h, size = (config[name] for name in ("hidden_size", "num_attention_heads", "head_dim", "v_head_dim"))
    yield "model.embed_tokens.weight", (config["vocab_size"], d)
    for layer, kind in enumerate(config["layer_types"]):
        prefix = f"model.layers.{layer}."
        slides = kind == "sliding_attention"
        k = config["num_key_value_heads"] * (2 if slides else 1)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{norm}.weight", (d,)
        for name, out, inner in (("q", n * h, d), ("k", k * h, d), ("v", k * size, d), ("o", d, n * size)):
            yield f"{prefix}self_attn.{name}_proj.weight", (out, inner)
        if slides:
            yield prefix + "self_attn.attention_sink_bias", (n,)
        sparse = config["mlp_layer_types"][layer] == "sparse"
        f = config["moe_intermediate_size" if sparse else "intermediate_size"]
        for above in [f"experts.{index}." for index in range(config["n_routed_experts"])] if sparse else [""]:
            for name in ("gate", "up", "down"):
                yield f"{prefix}mlp.{above}{name}_proj.weight", (d, f) if name == "down" else (f, d)
        if sparse:
            yield prefix + "mlp.gate.weight", (config["n_routed_experts"], d)
            yield prefix + "mlp.gate.e_score_correction_bias", (config["n_routed_experts"],)
    yield "model.norm.weight", (d,)
    yield "lm_head.weight", (config["vocab_size"], d)


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
    "granite_swa": _granite_swa,
    "granitemoe_swa": _granite_swa,
    "mellum": _mellum,
    "hy_v3": _hy_v3,
    "dbrx": _dbrx,
    "mimo_v2_flash": _mimo_v2_flash,
}
