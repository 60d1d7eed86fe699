"""Keys and shapes of checkpoints of families with mixtures of experts."""

from collections.abc import Callable, Iterator

from tests.goldens._case_types import Config

Shapes = Iterator[tuple[str, tuple[int, ...]]]
_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_NUMBERED = ("w1", "w3", "w2")


def sparse_model(
    config: Config, attention: Callable[[Config, str], Shapes], feed_forward: Callable[[Config, int, str], Shapes]
) -> Shapes:
    """Yields a model whose layers have two norms around what the families have each of their own."""
    d, v = config["hidden_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (d,)
        yield from attention(config, prefix + "self_attn.")
        yield prefix + "post_attention_layernorm.weight", (d,)
        yield from feed_forward(config, layer, prefix)
    yield "model.norm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


def sparse_attention(config: Config, prefix: str, biased: str = "", norms: str = "") -> Shapes:
    """Yields attention's tensors; ``biased`` has the letters of projections with biases, ``norms`` is head or whole."""
    d, n = config["hidden_size"], config["num_attention_heads"]
    k, h = config["num_key_value_heads"], config.get("head_dim") or d // n
    for letter, out, inner in (("q", n * h, d), ("k", k * h, d), ("v", k * h, d), ("o", d, n * h)):
        yield f"{prefix}{letter}_proj.weight", (out, inner)
        if letter in biased:
            yield f"{prefix}{letter}_proj.bias", (out,)
    if norms:
        yield prefix + "q_norm.weight", (h if norms == "head" else n * h,)
        yield prefix + "k_norm.weight", (h if norms == "head" else k * h,)


def projections(prefix: str, d: int, f: int, names: tuple[str, ...] = _PROJECTIONS, *, biased: bool = False) -> Shapes:
    for name, out, inner in zip(names, (f, f, d), (d, d, f), strict=True):
        yield f"{prefix}{name}.weight", (out, inner)
        if biased:
            yield f"{prefix}{name}.bias", (out,)


def sparse_experts(prefix: str, count: int, d: int, f: int, names: tuple[str, ...] = _PROJECTIONS) -> Shapes:
    """Yields a router and its experts."""
    yield prefix + "gate.weight", (count, d)
    for expert in range(count):
        yield from projections(f"{prefix}experts.{expert}.", d, f, names)


def sparse_feed_forward(config: Config, layer: int, prefix: str) -> Shapes:
    """Yields the feed-forward of a layer as DeepSeek-V3 has it: dense, or with routed and shared experts."""
    d, inner, count = (config[name] for name in ("hidden_size", "moe_intermediate_size", "n_routed_experts"))
    if layer < config["first_k_dense_replace"]:
        yield from projections(prefix + "mlp.", d, config["intermediate_size"])
        return
    yield from sparse_experts(prefix + "mlp.", count, d, inner)
    yield prefix + "mlp.gate.e_score_correction_bias", (count,)
    yield from projections(prefix + "mlp.shared_experts.", d, inner * config["n_shared_experts"])


def _qwen2_moe(config: Config, layer: int, prefix: str) -> Shapes:
    d = config["hidden_size"]
    if layer in config["mlp_only_layers"] or (layer + 1) % config["decoder_sparse_step"]:
        yield from projections(prefix + "mlp.", d, config["intermediate_size"])
        return
    yield from sparse_experts(prefix + "mlp.", config["num_experts"], d, config["moe_intermediate_size"])
    yield from projections(prefix + "mlp.shared_expert.", d, config["shared_expert_intermediate_size"])
    yield prefix + "mlp.shared_expert_gate.weight", (1, d)


def _minimax_m2(config: Config, layer: int, prefix: str) -> Shapes:
    del layer
    d, inner, count = (config[name] for name in ("hidden_size", "intermediate_size", "num_local_experts"))
    yield from sparse_experts(prefix + "block_sparse_moe.", count, d, inner, _NUMBERED)
    yield prefix + "block_sparse_moe.e_score_correction_bias", (count,)


def _ernie4_5_moe(config: Config, layer: int, prefix: str) -> Shapes:
    d, inner, count = (config[name] for name in ("hidden_size", "moe_intermediate_size", "moe_num_experts"))
    last, biased = config["moe_layer_end_index"], config["use_bias"]
    last = config["num_hidden_layers"] - 1 if last == -1 else last
    if not config["moe_layer_start_index"] <= layer <= last or (layer + 1) % config["moe_layer_interval"]:
        yield from projections(prefix + "mlp.", d, config["intermediate_size"], biased=biased)
        return
    yield from sparse_experts(prefix + "mlp.", count, d, inner)
    yield prefix + "mlp.moe_statics.e_score_correction_bias", (1, count)
    if config["moe_num_shared_experts"]:
        shared = inner * config["moe_num_shared_experts"]
        yield from projections(prefix + "mlp.shared_experts.", d, shared, biased=biased)


def _deepseek_v2(config: Config, layer: int, prefix: str) -> Shapes:
    d, inner, biased = config["hidden_size"], config["moe_intermediate_size"], config["mlp_bias"]
    if layer < config["first_k_dense_replace"]:
        yield from projections(prefix + "mlp.", d, config["intermediate_size"], biased=biased)
        return
    yield from sparse_experts(prefix + "mlp.", config["n_routed_experts"], d, inner)
    yield from projections(prefix + "mlp.shared_experts.", d, inner * config["n_shared_experts"], biased=biased)


def latent_attention(config: Config, prefix: str) -> Shapes:
    d, n, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    plain, rotated, value = (config[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if config["q_lora_rank"] is None:
        yield prefix + "q_proj.weight", (n * (plain + rotated), d)
    else:
        yield prefix + "q_a_proj.weight", (config["q_lora_rank"], d)
        yield prefix + "q_a_layernorm.weight", (config["q_lora_rank"],)
        yield prefix + "q_b_proj.weight", (n * (plain + rotated), config["q_lora_rank"])
    yield prefix + "kv_a_proj_with_mqa.weight", (rank + rotated, d)
    yield prefix + "kv_a_layernorm.weight", (rank,)
    yield prefix + "kv_b_proj.weight", (n * (plain + value), rank)
    yield prefix + "o_proj.weight", (d, n * value)


def _glm4_moe_shapes(config: Config) -> Shapes:
    biased = "qkv" if config["attention_bias"] else ""
    norms = "head" if config["use_qk_norm"] else ""
    return sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, biased, norms), sparse_feed_forward)


def _qwen2_moe_shapes(config: Config) -> Shapes:
    biased = "qkv" if config.get("qkv_bias", True) else ""
    return sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, biased), _qwen2_moe)


def _minimax_m2_shapes(config: Config) -> Shapes:
    return sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, norms="whole"), _minimax_m2)


def _ernie4_5_moe_shapes(config: Config) -> Shapes:
    biased = "qkvo" if config["use_bias"] else ""
    yield from sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, biased), _ernie4_5_moe)
    if biased:
        yield "lm_head.bias", (config["vocab_size"],)


def _llama4(config: Config, layer: int, prefix: str) -> Shapes:
    d, inner, count = (config[name] for name in ("hidden_size", "intermediate_size", "num_local_experts"))
    prefix += "feed_forward."
    if layer not in config["moe_layers"]:
        yield from projections(prefix, d, config["intermediate_size_mlp"])
        return
    yield prefix + "experts.gate_up_proj", (count, d, 2 * inner)
    yield prefix + "experts.down_proj", (count, inner, d)
    yield prefix + "router.weight", (count, d)
    yield from projections(prefix + "shared_expert.", d, inner)


def _llama4_shapes(config: Config) -> Shapes:
    biased = "qkvo" if config["attention_bias"] else ""
    return sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, biased), _llama4)


def _phimoe(config: Config, layer: int, prefix: str) -> Shapes:
    del layer
    d, inner, count = (config[name] for name in ("hidden_size", "intermediate_size", "num_local_experts"))
    yield from sparse_experts(prefix + "block_sparse_moe.", count, d, inner, _NUMBERED)


def _phimoe_shapes(config: Config) -> Shapes:
    d, biased = config["hidden_size"], "qkvo" if config["attention_bias"] else ""
    for key, shape in sparse_model(config, lambda c, prefix: sparse_attention(c, prefix, biased), _phimoe):
        yield key, shape
        if key.endswith("norm.weight"):
            yield key.replace(".weight", ".bias"), (d,)
    if config["lm_head_bias"]:
        yield "lm_head.bias", (config["vocab_size"],)


SPARSE_SHAPES: dict[str, Callable[[Config], Shapes]] = {
    "deepseek_v2": lambda config: sparse_model(config, latent_attention, _deepseek_v2),
    "glm4_moe": _glm4_moe_shapes,
    "qwen2_moe": _qwen2_moe_shapes,
    "minimax_m2": _minimax_m2_shapes,
    "ernie4_5_moe": _ernie4_5_moe_shapes,
    "llama4_text": _llama4_shapes,
    "phimoe": _phimoe_shapes,
}
