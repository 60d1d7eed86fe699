"""Keys and shapes of checkpoints of Gemma 3n and Gemma 4."""

from collections.abc import Iterator

from tests.goldens._case_types import Config

Shapes = Iterator[tuple[str, tuple[int, ...]]]
_NORMS = ("input", "post_attention", "pre_feedforward", "post_feedforward")


def gemma4_shapes(config: Config) -> Shapes:
    """Gemma 4, in the order of the model; a buffer ``layer_scalar`` is stored, too."""
    d, layers = config["hidden_size"], config["num_hidden_layers"]
    yield "model.embed_tokens.weight", (config["vocab_size"], d)
    yield from _per_layer(config, "model.", layers)
    for layer in range(layers):
        prefix, shared = f"model.layers.{layer}.", layer >= layers - config["num_kv_shared_layers"]
        kv_heads, head_size = _heads(config, layer)
        values = not (config["attention_k_eq_v"] and config["layer_types"][layer] == "full_attention")
        yield from _attention(config, prefix + "self_attn.", kv_heads, head_size, () if shared else "kv"[: 1 + values])
        f = config["intermediate_size"] * (2 if shared and config["use_double_wide_mlp"] else 1)
        yield from _mlp(prefix + "mlp.", d, f)
        yield from ((f"{prefix}{name}_layernorm.weight", (d,)) for name in _NORMS)
        yield prefix + "layer_scalar", (1,)
        yield from _mixing(config, prefix)
        if config.get("enable_moe_block"):
            yield from _experts(config, prefix)
    yield "model.norm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], d)


def gemma3n_shapes(config: Config) -> Shapes:
    """Gemma 3n, in the order of the model."""
    d, layers, streams = config["hidden_size"], config["num_hidden_layers"], config["altup_num_inputs"]
    yield "model.embed_tokens.weight", (config["vocab_size"], d)
    yield from _per_layer(config, "model.", layers)
    for place in ("altup_projections", "altup_unembed_projections"):
        yield from ((f"model.{place}.{index}.weight", (d, d)) for index in range(streams - 1))
    for layer in range(layers):
        prefix, shared = f"model.layers.{layer}.", layer >= layers - config["num_kv_shared_layers"]
        kv_heads, head_size = config["num_key_value_heads"], config["head_dim"]
        yield from _attention(config, prefix + "self_attn.", kv_heads, head_size, () if shared else "kv")
        f = config["intermediate_size"]
        yield from _mlp(prefix + "mlp.", d, f[layer] if isinstance(f, list) else f)
        yield from ((f"{prefix}{name}_layernorm.weight", (d,)) for name in _NORMS)
        yield prefix + "altup.correct_output_scale", (d,)
        yield prefix + "altup.correction_coefs.weight", (streams, streams)
        yield prefix + "altup.prediction_coefs.weight", (streams**2, streams)
        yield prefix + "altup.modality_router.weight", (streams, d)
        yield prefix + "altup.router_norm.weight", (d,)
        yield prefix + "laurel.linear_left.weight", (config["laurel_rank"], d)
        yield prefix + "laurel.linear_right.weight", (d, config["laurel_rank"])
        yield prefix + "laurel.post_laurel_norm.weight", (d,)
        yield from _mixing(config, prefix)
    yield "model.norm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], d)


def _heads(config: Config, layer: int) -> tuple[int, int]:
    """K and H."""
    common = {name: config[name] for name in ("num_key_value_heads", "head_dim")}
    if "per_layer_config" in config:
        own = common | config["per_layer_config"].get(str(layer), {})
        return own["num_key_value_heads"], own["head_dim"]
    if config["layer_types"][layer] == "sliding_attention":
        return common["num_key_value_heads"], common["head_dim"]
    kv_heads = config["num_global_key_value_heads"] if config["attention_k_eq_v"] else None
    return kv_heads or common["num_key_value_heads"], config["global_head_dim"]


def _per_layer(config: Config, prefix: str, layers: int) -> Shapes:
    d, size = config["hidden_size"], config.get("hidden_size_per_layer_input")
    if size:
        yield prefix + "embed_tokens_per_layer.weight", (config["vocab_size_per_layer_input"], layers * size)
        yield prefix + "per_layer_model_projection.weight", (layers * size, d)
        yield prefix + "per_layer_projection_norm.weight", (size,)


def _mixing(config: Config, prefix: str) -> Shapes:
    d, size = config["hidden_size"], config.get("hidden_size_per_layer_input")
    if size:
        yield prefix + "per_layer_input_gate.weight", (size, d)
        yield prefix + "per_layer_projection.weight", (d, size)
        yield prefix + "post_per_layer_input_norm.weight", (d,)


def _attention(config: Config, prefix: str, kv_heads: int, head_size: int, own: tuple[str, ...] | str) -> Shapes:
    d, heads = config["hidden_size"], config["num_attention_heads"] * head_size
    for letter, out, inner in (
        ("q", heads, d),
        *((letter, kv_heads * head_size, d) for letter in own),
        ("o", d, heads),
    ):
        yield f"{prefix}{letter}_proj.weight", (out, inner)
        if config["attention_bias"]:
            yield f"{prefix}{letter}_proj.bias", (out,)
    yield prefix + "q_norm.weight", (head_size,)
    if own:
        yield prefix + "k_norm.weight", (head_size,)


def _mlp(prefix: str, d: int, f: int) -> Shapes:
    yield prefix + "gate_proj.weight", (f, d)
    yield prefix + "up_proj.weight", (f, d)
    yield prefix + "down_proj.weight", (d, f)


def _experts(config: Config, prefix: str) -> Shapes:
    d, f, experts = config["hidden_size"], config["moe_intermediate_size"], config["num_experts"]
    yield prefix + "router.proj.weight", (experts, d)
    yield prefix + "router.scale", (d,)
    yield prefix + "router.per_expert_scale", (experts,)
    yield prefix + "experts.gate_up_proj", (experts, 2 * f, d)
    yield prefix + "experts.down_proj", (experts, d, f)
    for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
        yield f"{prefix}{name}.weight", (d,)
