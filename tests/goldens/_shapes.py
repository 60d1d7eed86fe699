"""Keys and shapes of Hugging Face checkpoints, by family.

Matrices are ``[out, in]``, as torch's Linear has them.
"""

from collections.abc import Iterator

from tests.goldens._case_types import Config
from tests.goldens._further_kind_shapes import FURTHER_KIND_SHAPES
from tests.goldens._further_shapes import FURTHER_SHAPES
from tests.goldens._gemma_shapes import gemma3n_shapes, gemma4_shapes
from tests.goldens._gpt_family_shapes import GPT_FAMILY_SHAPES, gpt_sizes
from tests.goldens._gpt_shapes import gpt2_shapes, gpt_bigcode_shapes, gpt_neox_shapes, openai_gpt_shapes
from tests.goldens._sparse_shapes import SPARSE_SHAPES
from tests.goldens._state_shapes import STATE_SHAPES
from tests.goldens._ungated_shapes import UNGATED_SHAPES
from tests.goldens._wrapper_shapes import inside, text_of
from tests.goldens._written_shapes import is_known, is_written, written_shapes

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Keys and shapes of a checkpoint, in the order of the model; no ``lm_head.weight`` where tied."""
    if "text_config" in config:
        return {inside(key, config): shape for key, shape in weight_shapes(text_of(config)).items()}
    if is_written(config) or (is_known(config) and config["model_type"] not in _BOTH):
        return written_shapes(config)
    own = _OWN.get(config["model_type"])
    if own is not None:
        return dict(own(config))
    d, v, n = (config[k] for k in ("hidden_size", "vocab_size", "num_attention_heads"))
    family = config["model_type"]
    attention = {"deepseek_v3": _latent_attention, "phi3": _fused_attention}.get(family, _attention)
    before, after = _NORMS.get(family, (("input_layernorm",), ("post_attention_layernorm",)))
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (v, d)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes.update(_norms(config, prefix, before))
        if _is_linear(config, layer):
            shapes.update(_gated_delta_net(config, prefix + "linear_attn.", d))
        else:
            shapes.update(attention(config, prefix + "self_attn.", d, n))
        shapes.update(_norms(config, prefix, after))
        shapes.update(_feed_forward(config, layer, prefix))
    shapes.update(_norms(config, "model.", ("norm",)))
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (v, d)
    return shapes


_BOTH = ("llama", "starcoder2", "dbrx", "mimo_v2_flash")
"""Model types with a function below, of which further cases are in ``data/shapes.json``."""
_OWN = {
    "gpt_neox": gpt_neox_shapes,
    "gpt2": gpt2_shapes,
    "openai-gpt": openai_gpt_shapes,
    "gpt_bigcode": gpt_bigcode_shapes,
    "gemma3n_text": gemma3n_shapes,
    "gemma4_text": gemma4_shapes,
    "gemma4_unified_text": gemma4_shapes,
    **SPARSE_SHAPES,
    **STATE_SHAPES,
    **UNGATED_SHAPES,
    **FURTHER_SHAPES,
    **GPT_FAMILY_SHAPES,
    **FURTHER_KIND_SHAPES,
}


def sizes_of(config: Config) -> tuple[int, int, int, int]:
    """L, D, F and V."""
    config = text_of(config)
    if config["model_type"] in ("gpt2", "gpt_bigcode", "openai-gpt"):
        d = config["n_embd"]
        return config["n_layer"], d, config.get("n_inner") or 4 * d, config["vocab_size"]
    if config["model_type"] in GPT_FAMILY_SHAPES:
        return gpt_sizes(config)
    if config["model_type"] in ("ctrl", "dbrx"):
        return gpt_sizes(config)
    d, v = config["hidden_size"], config["vocab_size"]
    layers = config["num_hidden_layers"] if "num_hidden_layers" in config else len(config["layers_block_type"])
    inner = next(filter(None, map(config.get, ("intermediate_size", "block_ff_dim", "moe_intermediate_size"))), 0)
    return layers, d, inner[0] if isinstance(inner, list) else inner, v


def is_zero_centred(config: Config, key: str) -> bool:
    """Returns whether the model adds 1 to a norm's weight."""
    family = text_of(config)["model_type"]
    ones = family in ("gemma", "gemma2", "vaultgemma", "gemma3_text", "nemotron")
    return ones or (family in _HYBRID and not key.endswith("linear_attn.norm.weight"))


_HYBRID = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")


def _is_linear(config: Config, layer: int) -> bool:
    if config["model_type"] not in _HYBRID:
        return False
    if "layer_types" in config:
        return config["layer_types"][layer] == "linear_attention"
    return (layer + 1) % config["full_attention_interval"] != 0


def _gated_delta_net(config: Config, prefix: str, d: int) -> Shapes:
    heads = config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    yield prefix + "conv1d.weight", (2 * keys + values, 1, config["linear_conv_kernel_dim"])
    yield prefix + "dt_bias", (heads,)
    yield prefix + "A_log", (heads,)
    if config["model_type"] == "qwen3_next":
        yield prefix + "in_proj_qkvz.weight", (2 * keys + 2 * values, d)
        yield prefix + "in_proj_ba.weight", (2 * heads, d)
    else:
        yield prefix + "in_proj_qkv.weight", (2 * keys + values, d)
        yield prefix + "in_proj_z.weight", (values, d)
        yield prefix + "in_proj_b.weight", (heads, d)
        yield prefix + "in_proj_a.weight", (heads, d)
    yield prefix + "norm.weight", (config["linear_value_head_dim"],)
    yield prefix + "out_proj.weight", (d, values)


# The norms of a layer that stand before its attention in the order of the weights, and after it.
_GEMMA2_NORMS = ("post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_AFTER = ((), ("post_attention_layernorm", "post_feedforward_layernorm"))
_NORMS = {
    "olmo2": _AFTER,
    "olmo3": _AFTER,
    "exaone4": _AFTER,
    "cohere": (("input_layernorm",), ()),
    "cohere2": (("input_layernorm",), ()),
    "gemma2": (("input_layernorm",), _GEMMA2_NORMS),
    "gemma3_text": (("input_layernorm",), _GEMMA2_NORMS),
    "glm4": (("input_layernorm",), ("post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")),
}


def _norms(config: Config, prefix: str, names: tuple[str, ...]) -> Shapes:
    for name in names:
        if (
            name == "post_attention_layernorm"
            and config["model_type"] == "stablelm"
            and config["use_parallel_residual"]
        ):
            continue
        yield f"{prefix}{name}.weight", (config["hidden_size"],)
        if config["model_type"] == "stablelm":
            yield f"{prefix}{name}.bias", (config["hidden_size"],)


def _attention(config: Config, prefix: str, d: int, n: int) -> Shapes:
    family = config["model_type"]
    k = config.get("num_key_value_heads") or n
    h = config.get("head_dim") or d // n
    biased = any(config.get(name) for name in ("attention_bias", "use_qkv_bias", "use_bias")) or family == "qwen2"
    biased = "" if not biased else "qkv" if family in ("qwen2", "glm", "glm4", "stablelm", "seed_oss") else "qkvo"
    gates = 2 if family in _HYBRID else 1
    for letter, out, inner in (("q", gates * n * h, d), ("k", k * h, d), ("v", k * h, d), ("o", d, n * h)):
        yield f"{prefix}{letter}_proj.weight", (out, inner)
        if letter in biased:
            yield f"{prefix}{letter}_proj.bias", (out,)
    if family == "gpt_oss":
        yield prefix + "sinks", (n,)
    if family in ("qwen3", "qwen3_moe", *_HYBRID, "gemma3_text", "exaone4", "olmo2", "olmo3"):
        yield prefix + "q_norm.weight", (n * h if family in ("olmo2", "olmo3") else h,)
        yield prefix + "k_norm.weight", (k * h if family in ("olmo2", "olmo3") else h,)
    if config.get("use_qk_norm") and family == "cohere":
        yield prefix + "q_norm.weight", (n, h)
        yield prefix + "k_norm.weight", (k, h)
    if config.get("qk_layernorm") and family == "stablelm":
        yield from (
            (f"{prefix}{x}_layernorm.norms.{i}.weight", (h,)) for x, m in (("q", n), ("k", k)) for i in range(m)
        )
    if family == "hunyuan_v1_dense":
        yield prefix + "query_layernorm.weight", (h,)
        yield prefix + "key_layernorm.weight", (h,)


def _fused_attention(config: Config, prefix: str, d: int, n: int) -> Shapes:
    h, k = d // n, config["num_key_value_heads"]
    yield prefix + "qkv_proj.weight", ((n + 2 * k) * h, d)
    yield prefix + "o_proj.weight", (d, n * h)


def _latent_attention(config: Config, prefix: str, d: int, n: int) -> Shapes:
    plain, rotated, value = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    rank, query_rank, biased = config["kv_lora_rank"], config["q_lora_rank"], config["attention_bias"]
    if query_rank is None:
        yield prefix + "q_proj.weight", (n * (plain + rotated), d)
    else:
        yield prefix + "q_a_proj.weight", (query_rank, d)
        if biased:
            yield prefix + "q_a_proj.bias", (query_rank,)
        yield prefix + "q_a_layernorm.weight", (query_rank,)
        yield prefix + "q_b_proj.weight", (n * (plain + rotated), query_rank)
    yield prefix + "kv_a_proj_with_mqa.weight", (rank + rotated, d)
    if biased:
        yield prefix + "kv_a_proj_with_mqa.bias", (rank + rotated,)
    yield prefix + "kv_a_layernorm.weight", (rank,)
    yield prefix + "kv_b_proj.weight", (n * (plain + value), rank)
    yield prefix + "o_proj.weight", (d, n * value)
    if biased:
        yield prefix + "o_proj.bias", (d,)


def _feed_forward(config: Config, layer: int, prefix: str) -> Shapes:
    family, (_, d, f, _) = config["model_type"], sizes_of(config)
    if family == "gpt_oss":
        yield from _input_major_experts(prefix + "mlp.", config["num_local_experts"], d, f)
    elif family == "mixtral":
        yield from _experts(prefix + "block_sparse_moe.", config["num_local_experts"], d, f, ("w1", "w3", "w2"))
    elif family in ("qwen3_moe", "qwen3_next", "qwen3_5_moe_text") and _is_sparse_qwen(config, layer):
        experts = config.get("num_local_experts") or config["num_experts"]  # transformers 5, and 4
        yield from _experts(prefix + "mlp.", experts, d, config["moe_intermediate_size"], _PROJECTIONS)
        if family != "qwen3_moe":
            inner = config["shared_expert_intermediate_size"]
            yield from _projections(prefix + "mlp.shared_expert.", d, inner, _PROJECTIONS)
            yield prefix + "mlp.shared_expert_gate.weight", (1, d)
    elif family == "deepseek_v3" and layer >= config["first_k_dense_replace"]:
        inner = config["moe_intermediate_size"]
        yield from _experts(prefix + "mlp.", config["n_routed_experts"], d, inner, _PROJECTIONS)
        yield prefix + "mlp.gate.e_score_correction_bias", (config["n_routed_experts"],)
        yield from _projections(prefix + "mlp.shared_experts.", d, inner * config["n_shared_experts"], _PROJECTIONS)
    elif family in ("phi3", "glm", "glm4"):
        yield prefix + "mlp.gate_up_proj.weight", (2 * f, d)
        yield prefix + "mlp.down_proj.weight", (d, f)
    else:
        yield from _projections(
            prefix + "mlp.", d, f, _PROJECTIONS, config.get("mlp_bias") or config.get("use_bias", False)
        )


_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def _is_sparse_qwen(config: Config, layer: int) -> bool:
    return layer not in config.get("mlp_only_layers", ()) and (layer + 1) % config.get("decoder_sparse_step", 1) == 0


def _input_major_experts(prefix: str, experts: int, d: int, f: int) -> Shapes:
    yield prefix + "router.weight", (experts, d)
    yield prefix + "router.bias", (experts,)
    yield prefix + "experts.gate_up_proj", (experts, d, 2 * f)
    yield prefix + "experts.gate_up_proj_bias", (experts, 2 * f)
    yield prefix + "experts.down_proj", (experts, f, d)
    yield prefix + "experts.down_proj_bias", (experts, d)


def _experts(prefix: str, experts: int, d: int, f: int, names: tuple[str, str, str]) -> Shapes:
    yield prefix + "gate.weight", (experts, d)
    for expert in range(experts):
        yield from _projections(f"{prefix}experts.{expert}.", d, f, names)


def _projections(prefix: str, d: int, f: int, names: tuple[str, str, str], biased: bool = False) -> Shapes:
    for name, out, inner in zip(names, (f, f, d), (d, d, f), strict=True):
        yield f"{prefix}{name}.weight", (out, inner)
        if biased:
            yield f"{prefix}{name}.bias", (out,)
