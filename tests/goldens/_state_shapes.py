"""Keys and shapes of Hugging Face checkpoints of models with state-space layers and short convolutions."""

from collections.abc import Iterator

from tests.goldens._case_types import Config

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def lfm2_shapes(config: Config) -> Shapes:
    """Yields keys and shapes of an LFM2, dense or with experts, in the order of the model."""
    d, v = config["hidden_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", (v, d)
    for layer, kind in enumerate(config["layer_types"]):
        prefix = f"model.layers.{layer}."
        yield from _short_conv(config, prefix + "conv.") if kind == "conv" else _lfm2_attention(config, prefix)
        yield from _lfm2_feed_forward(config, layer, prefix + "feed_forward.")
        yield prefix + "operator_norm.weight", (d,)
        yield prefix + "ffn_norm.weight", (d,)
    yield "model.embedding_norm.weight", (d,)
    if not config.get("tie_embedding", config.get("tie_word_embeddings", True)):
        yield "lm_head.weight", (v, d)


def _short_conv(config: Config, prefix: str) -> Shapes:
    d, taps, biased = config["hidden_size"], config["conv_L_cache"], config["conv_bias"]
    for name, shape in (("conv", (d, 1, taps)), ("in_proj", (3 * d, d)), ("out_proj", (d, d))):
        yield f"{prefix}{name}.weight", shape
        if biased:
            yield f"{prefix}{name}.bias", shape[:1]


def _lfm2_attention(config: Config, prefix: str) -> Shapes:
    d, n, k = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    h = config.get("head_dim") or d // n
    for name, shape in (("q", (n * h, d)), ("k", (k * h, d)), ("v", (k * h, d)), ("out", (d, n * h))):
        yield f"{prefix}self_attn.{name}_proj.weight", shape
    yield prefix + "self_attn.q_layernorm.weight", (h,)
    yield prefix + "self_attn.k_layernorm.weight", (h,)


def _lfm2_feed_forward(config: Config, layer: int, prefix: str) -> Shapes:
    d = config["hidden_size"]
    if layer >= config.get("num_dense_layers", config["num_hidden_layers"]):
        for expert in range(config["num_experts"]):
            yield from _gated(f"{prefix}experts.{expert}.", d, config["moe_intermediate_size"])
        yield prefix + "gate.weight", (config["num_experts"], d)
        if config["use_expert_bias"]:
            yield prefix + "expert_bias", (config["num_experts"],)
        return
    inner: int = config["block_ff_dim"] if "block_ff_dim" in config else config["intermediate_size"]
    if config.get("block_auto_adjust_ff_dim", False):
        multiple = config["block_multiple_of"]
        inner = -(-int(config["block_ffn_dim_multiplier"] * int(2 * inner / 3)) // multiple) * multiple
    yield from _gated(prefix, d, inner)


def _gated(prefix: str, d: int, f: int) -> Shapes:
    yield prefix + "w1.weight", (f, d)
    yield prefix + "w3.weight", (f, d)
    yield prefix + "w2.weight", (d, f)


def mamba2_shapes(config: Config) -> Shapes:
    """Yields keys and shapes of a Mamba-2."""
    d, v, biased = config["hidden_size"], config["vocab_size"], config["use_bias"]
    yield "backbone.embeddings.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"backbone.layers.{layer}."
        yield prefix + "norm.weight", (d,)
        heads = config["num_heads"], config["head_dim"], config["n_groups"], config["state_size"]
        biases = {"conv1d": config["use_conv_bias"], "in_proj": biased, "out_proj": biased}
        yield from mamba_shapes(prefix + "mixer.", d, heads, config["conv_kernel"], biases)
    yield "backbone.norm_f.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


def mamba_shapes(
    prefix: str, d: int, heads: tuple[int, int, int, int], taps: int, biases: dict[str, bool], normed: bool = True
) -> Shapes:
    """Yields keys and shapes of a Mamba-2 mixer; ``heads`` is their number, size, groups and state size."""
    n, h, groups, state = heads
    inner, channels = n * h, n * h + 2 * groups * state
    for name in ("dt_bias", "A_log", "D"):
        yield prefix + name, (n,)
    for name, shape in (
        ("conv1d", (channels, 1, taps)),
        ("in_proj", (inner + channels + n, d)),
        ("norm", (inner,)),
        ("out_proj", (d, inner)),
    ):
        if name != "norm" or normed:
            yield f"{prefix}{name}.weight", shape
        if biases.get(name):
            yield f"{prefix}{name}.bias", shape[:1]


def granite_hybrid_shapes(config: Config) -> Shapes:
    """Yields keys and shapes of a Granite 4."""
    d, v, f = config["hidden_size"], config["vocab_size"], config["shared_intermediate_size"]
    yield "model.embed_tokens.weight", (v, d)
    for layer, kind in enumerate(config["layer_types"]):
        prefix, experts = f"model.layers.{layer}.", config["num_local_experts"]
        yield prefix + "input_layernorm.weight", (d,)
        if kind.removeprefix("full_") == "attention":
            yield from _attention(config, prefix, d)
        else:
            yield from _mamba_of(config, prefix, d, config["mamba_proj_bias"])
        yield prefix + "post_attention_layernorm.weight", (d,)
        if experts:
            inner = config["intermediate_size"]
            yield prefix + "block_sparse_moe.input_linear.weight", (experts, 2 * inner, d)
            yield prefix + "block_sparse_moe.output_linear.weight", (experts, d, inner)
            yield prefix + "block_sparse_moe.router.layer.weight", (experts, d)
        yield prefix + "shared_mlp.input_linear.weight", (2 * f, d)
        yield prefix + "shared_mlp.output_linear.weight", (d, f)
    yield "model.norm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


def falcon_h1_shapes(config: Config) -> Shapes:
    """Yields keys and shapes of a Falcon-H1."""
    d, v, f = config["hidden_size"], config["vocab_size"], config["intermediate_size"]
    yield "model.embed_tokens.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, shape in (("gate", (f, d)), ("up", (f, d)), ("down", (d, f))):
            yield f"{prefix}feed_forward.{name}_proj.weight", shape
            if config["mlp_bias"]:
                yield f"{prefix}feed_forward.{name}_proj.bias", shape[:1]
        yield from _mamba_of(config, prefix, d, config["projectors_bias"], config["mamba_rms_norm"])
        yield from _attention(config, prefix, d)
        yield prefix + "input_layernorm.weight", (d,)
        yield prefix + "pre_ff_layernorm.weight", (d,)
    yield "model.final_layernorm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


def _mamba_of(config: Config, prefix: str, d: int, output_bias: bool, normed: bool = True) -> Shapes:
    names = ("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state")
    n, h, groups, state = (config[name] for name in names)
    biases = {"conv1d": config["mamba_conv_bias"], "in_proj": config["mamba_proj_bias"], "out_proj": output_bias}
    yield from mamba_shapes(prefix + "mamba.", d, (n, h, groups, state), config["mamba_d_conv"], biases, normed)


def _attention(config: Config, prefix: str, d: int, module: str = "self_attn") -> Shapes:
    n, k = config["num_attention_heads"], config["num_key_value_heads"]
    h = config.get("head_dim") or d // n
    for name, shape in (("q", (n * h, d)), ("k", (k * h, d)), ("v", (k * h, d)), ("o", (d, n * h))):
        yield f"{prefix}{module}.{name}_proj.weight", shape
        if config.get("attention_bias"):
            yield f"{prefix}{module}.{name}_proj.bias", shape[:1]


def nemotron_h_shapes(config: Config) -> Shapes:
    """Yields keys and shapes of a Nemotron-H or Nemotron 3."""
    d, v, f = config["hidden_size"], config["vocab_size"], config["intermediate_size"]
    yield "backbone.embeddings.weight", (v, d)
    for layer, kind in enumerate(_nemotron_kinds(config)):
        prefix = f"backbone.layers.{layer}."
        yield prefix + "norm.weight", (d,)
        if kind == "M":
            names = ("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size")
            n, h, groups, state = (config[name] for name in names)
            biases = {"conv1d": config["use_conv_bias"], "in_proj": config["use_bias"], "out_proj": config["use_bias"]}
            yield from mamba_shapes(prefix + "mixer.", d, (n, h, groups, state), config["conv_kernel"], biases)
        elif kind == "*":
            yield from _attention(config, prefix, d, "mixer")
        elif kind == "-":
            yield from _ungated(prefix + "mixer.", d, f, config["mlp_bias"])
        else:
            yield from _nemotron_experts(config, prefix + "mixer.", d)
    yield "backbone.norm_f.weight", (d,)
    yield "lm_head.weight", (v, d)


def _nemotron_kinds(config: Config) -> str:
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
    if "hybrid_override_pattern" in config:
        return config["hybrid_override_pattern"]
    return "".join(letters[kind] for kind in config["layers_block_type"])


def _nemotron_experts(config: Config, prefix: str, d: int) -> Shapes:
    experts, latent, biased = config["n_routed_experts"], config["moe_latent_size"], config["mlp_bias"]
    for expert in range(experts):
        yield from _ungated(f"{prefix}experts.{expert}.", latent or d, config["moe_intermediate_size"], False)
    yield prefix + "gate.weight", (experts, d)
    yield prefix + "gate.e_score_correction_bias", (experts,)
    yield from _ungated(prefix + "shared_experts.", d, config["moe_shared_expert_intermediate_size"], biased)
    for name, shape in (("fc1", (latent, d)), ("fc2", (d, latent))) if latent else ():
        yield f"{prefix}{name}_latent_proj.weight", shape
        if biased:
            yield f"{prefix}{name}_latent_proj.bias", shape[:1]


def _ungated(prefix: str, d: int, f: int, biased: bool) -> Shapes:
    for name, shape in (("up", (f, d)), ("down", (d, f))):
        yield f"{prefix}{name}_proj.weight", shape
        if biased:
            yield f"{prefix}{name}_proj.bias", shape[:1]


def selective_shapes(config: Config) -> Shapes:
    """Yields keys and shapes of a Mamba or a Falcon-Mamba."""
    d, v = config["hidden_size"], config["vocab_size"]
    yield "backbone.embeddings.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"backbone.layers.{layer}."
        yield prefix + "norm.weight", (d,)
        sizes = config["expand"] * d, config["state_size"], config["time_step_rank"], config["conv_kernel"]
        yield from _selective(prefix + "mixer.", d, sizes, config["use_conv_bias"], config["use_bias"])
    yield "backbone.norm_f.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


def _selective(prefix: str, d: int, sizes: tuple[int, int, int, int], conv_bias: bool, biased: bool) -> Shapes:
    inner, states, rank, taps = sizes
    yield prefix + "A_log", (inner, states)
    yield prefix + "D", (inner,)
    for name, shape, bias in (
        ("conv1d", (inner, 1, taps), conv_bias),
        ("in_proj", (2 * inner, d), biased),
        ("x_proj", (rank + 2 * states, inner), False),
        ("dt_proj", (inner, rank), True),
        ("out_proj", (d, inner), biased),
    ):
        yield f"{prefix}{name}.weight", shape
        if bias:
            yield f"{prefix}{name}.bias", shape[:1]


def jamba_shapes(config: Config) -> Shapes:
    """Yields keys and shapes of a Jamba."""
    d, v, f = config["hidden_size"], config["vocab_size"], config["intermediate_size"]
    h, kv = d // config["num_attention_heads"], config["num_key_value_heads"]
    sizes = config["mamba_expand"] * d, config["mamba_d_state"], config["mamba_dt_rank"], config["mamba_d_conv"]
    yield "model.embed_tokens.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        if layer % config["attn_layer_period"] == config["attn_layer_offset"]:
            for name, shape in (("q", (d, d)), ("k", (kv * h, d)), ("v", (kv * h, d)), ("o", (d, d))):
                yield f"{prefix}self_attn.{name}_proj.weight", shape
        else:
            yield from _selective(prefix + "mamba.", d, sizes, config["mamba_conv_bias"], config["mamba_proj_bias"])
            for name, size in (("dt", sizes[2]), ("b", sizes[1]), ("c", sizes[1])):
                yield f"{prefix}mamba.{name}_layernorm.weight", (size,)
        prefix += "feed_forward."
        if layer % config["expert_layer_period"] == config["expert_layer_offset"]:
            yield prefix + "router.weight", (config["num_experts"], d)
            for expert in range(config["num_experts"]):
                yield from _gate_up_down(f"{prefix}experts.{expert}.", d, f)
        else:
            yield from _gate_up_down(prefix, d, f)
        yield f"model.layers.{layer}.input_layernorm.weight", (d,)
        yield f"model.layers.{layer}.pre_ff_layernorm.weight", (d,)
    yield "model.final_layernorm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


def _gate_up_down(prefix: str, d: int, f: int) -> Shapes:
    for name, shape in (("gate", (f, d)), ("up", (f, d)), ("down", (d, f))):
        yield f"{prefix}{name}_proj.weight", shape


def bamba_shapes(config: Config) -> Shapes:
    """Yields keys and shapes of a Bamba."""
    d, v = config["hidden_size"], config["vocab_size"]
    h, kv = d // config["num_attention_heads"], config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        if layer in config["attn_layer_indices"]:
            for name, shape in (("q", (d, d)), ("k", (kv * h, d)), ("v", (kv * h, d)), ("o", (d, d))):
                yield f"{prefix}self_attn.{name}_proj.weight", shape
        else:
            heads = tuple(config[f"mamba_{name}"] for name in ("n_heads", "d_head", "n_groups", "d_state"))
            biases = {"conv1d": config["mamba_conv_bias"]}
            yield from mamba_shapes(prefix + "mamba.", d, heads, config["mamba_d_conv"], biases)
        yield from _gate_up_down(prefix + "feed_forward.", d, config["intermediate_size"])
        yield prefix + "input_layernorm.weight", (d,)
        yield prefix + "pre_ff_layernorm.weight", (d,)
    yield "model.final_layernorm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


STATE_SHAPES = {
    "mamba": selective_shapes,
    "falcon_mamba": selective_shapes,
    "jamba": jamba_shapes,
    "bamba": bamba_shapes,
    "lfm2": lfm2_shapes,
    "lfm2_moe": lfm2_shapes,
    "mamba2": mamba2_shapes,
    "granitemoehybrid": granite_hybrid_shapes,
    "falcon_h1": falcon_h1_shapes,
    "nemotron_h": nemotron_h_shapes,
}
