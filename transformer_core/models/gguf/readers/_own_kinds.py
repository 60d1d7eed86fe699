"""Decoders that transformers has not: DeepSeek-MoE, Ling, Arctic, Grok, Jais, OpenELM, PLaMo, Refact, ..."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import FUSED_QKV, GgufArchitecture
from transformer_core.models.gguf.readers._common import (
    WINDOW,
    Source,
    Values,
    biased,
    common,
    layer_types,
    rotated_share,
    tied,
    vocabulary,
    window,
    with_fields,
)
from transformer_core.models.gguf.readers._named_kinds import FULL, SLIDING

_SOFTMAX, _SIGMOID = 1, 2  # llama.cpp's numbers of the function that makes scores of a router's logits
_INNER: Final = "expert_feed_forward_length"
_SCALE: Final = "expert_weights_scale"
_DENSE: Final = "leading_dense_block_count"
_FORM: Final[Values] = {"stored_form": "gguf"}
_BIAS_MAX: Final = "attention.max_alibi_bias"
_TEMPERATURES: Final = ("attention.temperature_length", "rope.scaling.factor")


def _check_scoring(fields: ConfigFields, expected: int) -> None:
    if fields.integer("expert_gating_func", 0, minimum=0) not in (0, expected):
        fields.refuse("expert_gating_func", f"{expected}, or no such field")


def _counts(fields: ConfigFields) -> Values:
    if fields.number(_SCALE, 1.0, above=-1.0) not in (0.0, 1.0):
        fields.refuse(_SCALE, "1, or no such field: weights of these experts are not scaled")
    return {
        "first_k_dense_replace": fields.integer(_DENSE, 0, minimum=0),
        "moe_intermediate_size": fields.integer(_INNER),
        "num_experts_per_tok": fields.integer("expert_used_count"),
    }


def _deepseek(source: Source) -> Values:
    fields = source.fields
    _check_scoring(fields, _SOFTMAX)
    return common(
        source,
        "DeepseekForCausalLM",
        "deepseek",
        attention_bias=biased(source, "attn_q"),
        n_routed_experts=fields.integer("expert_count"),
        n_shared_experts=fields.integer("expert_shared_count", 0, minimum=0),
        norm_topk_prob=fields.boolean("expert_weights_norm", False),
        **_counts(fields),
    )


def _bailing(source: Source) -> Values:
    fields = source.fields
    return common(
        with_fields(source, feed_forward_length=fields.integer("feed_forward_length", fields.integer(_INNER))),
        "BailingMoeForCausalLM",
        "bailing_moe",
        num_experts=fields.integer("expert_count"),
        num_shared_experts=fields.integer("expert_shared_count", 0, minimum=0),
        norm_topk_prob=fields.boolean("expert_weights_norm", False),
        use_qkv_bias=biased(source, "attn_q"),
        **_counts(fields),
    )


def _bailing2(source: Source) -> Values:
    """Returns the fields of Ling 2; ``block_count`` has the layers that predict further tokens, which are not run."""
    fields = source.fields
    _check_scoring(fields, _SIGMOID)
    layers, further = fields.integer("block_count"), fields.integer("nextn_predict_layers", 0, minimum=0)
    if layers <= further:
        fields.refuse("nextn_predict_layers", f"less than block_count ({layers})")
    inner = fields.integer(_INNER)
    return common(
        with_fields(source, block_count=layers - further),
        "BailingMoeV2ForCausalLM",
        "bailing_moe",
        first_k_dense_replace=fields.integer(_DENSE, 0, minimum=0),
        moe_intermediate_size=inner,
        moe_shared_expert_intermediate_size=fields.integer("expert_shared_feed_forward_length", inner),
        n_group=fields.integer("expert_group_count", 1),
        norm_topk_prob=fields.boolean("expert_weights_norm", False),
        num_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        num_nextn_predict_layers=further,
        num_shared_experts=fields.integer("expert_shared_count", 0, minimum=0),
        partial_rotary_factor=rotated_share(source),
        routed_scaling_factor=fields.number(_SCALE, 1.0),
        topk_group=fields.integer("expert_group_used_count", 1),
        use_qk_norm=True,
    )


def _arctic(source: Source) -> Values:
    fields = source.fields
    return common(
        source,
        "ArcticForCausalLM",
        "arctic",
        moe_layer_frequency=1,
        num_experts_per_tok=fields.integer("expert_used_count"),
        num_local_experts=fields.integer("expert_count"),
        parallel_attn_mlp_res=True,
        use_residual=True,
    )


def _grok(source: Source) -> Values:
    fields = source.fields
    for name in _TEMPERATURES:
        if fields.has(name):
            fields.refuse(name, "no such field: Grok with YaRN or scaled queries (Grok 2) is not built")
    inner = fields.integer("feed_forward_length")
    return common(
        source,
        "Grok1ForCausalLM",
        "grok",
        attn_logit_softcapping=fields.number("attn_logit_softcapping", 30.0),
        attn_output_multiplier=fields.number("attention.output_scale", 0.08838834764831845),
        embedding_multiplier_scale=fields.number("embedding_scale", 78.38367176906169),
        final_logit_softcapping=fields.number("final_logit_softcapping", 0.0, above=-1.0) or None,
        moe_intermediate_size=fields.integer(_INNER, inner),
        norm_topk_prob=True,
        num_experts_per_tok=fields.integer("expert_used_count"),
        num_local_experts=fields.integer("expert_count"),
        output_multiplier_scale=fields.number("logit_scale", 0.5773502691896257),
        residual_moe=source.file.has("blk.0.ffn_up.weight"),
        router_logit_softcapping=None,  # llama.cpp reads the field, and does not cap
    )


def _jais(source: Source) -> Values:
    """Returns the fields of Jais; its scales of embeddings and logits are in the tensors."""
    fields = source.fields
    if fields.number(_BIAS_MAX, 8.0) != 8.0:
        fields.refuse(_BIAS_MAX, "8")
    return {
        "architectures": ["JAISLMHeadModel"],
        "model_type": "jais",
        "activation_function": "swiglu",
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon"),
        "mup_scale_qk_dot_by_d": True,
        "n_embd": fields.integer("embedding_length"),
        "n_head": fields.integer("attention.head_count"),
        "n_inner": fields.integer("feed_forward_length"),
        "n_layer": fields.integer("block_count"),
        "n_positions": fields.integer("context_length"),
        "position_embedding_type": "alibi",
        "tie_word_embeddings": tied(source),
        "vocab_size": vocabulary(source),
    }


def _openelm(source: Source) -> Values:
    fields = source.fields
    if abs(fields.number("attention.layer_norm_rms_epsilon") / 1e-6 - 1) > 1e-5:
        fields.refuse("attention.layer_norm_rms_epsilon", "1e-06, which OpenELM has")
    hidden = fields.integer("embedding_length")
    listed = {name: fields.values.get(name) for name in ("attention.head_count", "attention.head_count_kv")}
    inners = fields.values.get("feed_forward_length")
    if not isinstance(inners, list) or not all(isinstance(inner, int) and 0 < inner < 1 << 30 for inner in inners):
        fields.refuse("feed_forward_length", "a number for each layer")
    return {
        "architectures": ["OpenELMForCausalLM"],
        "model_type": "openelm",
        "activation_fn_name": "swish",
        "ffn_dim_divisor": 1,
        "ffn_multipliers": [inner / hidden for inner in inners],
        "head_dim": fields.integer("attention.key_length"),
        "max_context_length": fields.integer("context_length"),
        "model_dim": hidden,
        "num_kv_heads": listed["attention.head_count_kv"],
        "num_query_heads": listed["attention.head_count"],
        "num_transformer_layers": fields.integer("block_count"),
        "rope_freq_constant": fields.number("rope.freq_base", 10000.0, above=1.0),
        "share_input_output_layers": tied(source),
        "vocab_size": vocabulary(source),
    }


def _refact(source: Source) -> Values:
    return common(source, "GPTRefactForCausalLM", "gpt_refact", **_FORM)


def _smallthinker(source: Source) -> Values:
    fields = source.fields
    layers, seen = fields.integer("block_count"), window(fields)
    turns = [int(bool(index % 4)) for index in range(layers)]
    return common(
        with_fields(source, feed_forward_length=fields.integer(_INNER)),
        "SmallThinkerForCausalLM",
        "smallthinker",
        moe_ffn_hidden_size=fields.integer(_INNER),
        moe_num_active_primary_experts=fields.integer("expert_used_count"),
        moe_num_primary_experts=fields.integer("expert_count"),
        moe_primary_router_apply_softmax=fields.integer("expert_gating_func", _SIGMOID) == _SOFTMAX,
        rope_layout=turns if seen else [1] * layers,
        sliding_window_layout=turns if seen else [0] * layers,
        sliding_window_size=seen,
    )


def _plamo(source: Source) -> Values:
    return common(source, "PlamoForCausalLM", "plamo", **_FORM)


def _plamo3(source: Source) -> Values:
    fields, seen = source.fields, window(source.fields)
    if seen is None:
        return common(source, "Plamo3ForCausalLM", "plamo3", **_FORM)
    values = common(source, "Plamo3ForCausalLM", "plamo3", sliding_window=seen, **layer_types(fields, 8), **_FORM)
    base, scaling = values.pop("rope_theta"), values.pop("rope_scaling", {"rope_type": "default"})
    own = fields.number("rope.freq_base_swa", base, above=1.0)
    values["rope_parameters"] = {
        "full_attention": {**scaling, "rope_theta": base},
        "sliding_attention": {**scaling, "rope_theta": own},
    }
    return values


def _maincoder(source: Source) -> Values:
    return common(source, "MaincoderForCausalLM", "maincoder", **_FORM)


def _hunyuan_vl(source: Source) -> Values:
    """Returns the fields of the decoder alone: tokens of texts have one position."""
    return common(source, "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", attention_bias=biased(source, "attn_q"))


def _step35(source: Source) -> Values:
    """Returns the fields of Step 3.5 Flash; llama.cpp rotates half of what the file says in layers without a window."""
    fields = source.fields
    _check_scoring(fields, _SIGMOID)
    layers, further = fields.integer("block_count"), fields.integer("nextn_predict_layers", 0, minimum=0)
    if layers <= further:
        fields.refuse("nextn_predict_layers", f"less than block_count ({layers})")
    if not fields.boolean("expert_weights_norm", False):
        fields.refuse("expert_weights_norm", "true: weights of experts that are not divided by their sum are not built")
    for name in _CLAMPS:
        limits = fields.values.get(name)
        if any(limits if isinstance(limits, list) else [limits]):
            fields.refuse(name, "zeros, or no such field: bounds of gates are not built")
    layers -= further
    kinds = layer_types(with_fields(source, block_count=layers, **_pattern(fields, layers)).fields, 4)["layer_types"]
    heads = _one_each(fields, "attention.head_count", kinds)
    kv_heads = set(_one_each(fields, "attention.head_count_kv", kinds).values())
    if len(kv_heads) != 1:
        fields.refuse("attention.head_count_kv", "the same number for each layer")
    full, sliding = heads.get(FULL) or heads[SLIDING], heads.get(SLIDING) or heads[FULL]
    plain = with_fields(source, block_count=layers, attention__head_count=full, attention__head_count_kv=kv_heads.pop())
    values = common(plain, "Step3p5ForCausalLM", "step3p5")
    size = values["head_dim"]
    rotated, base = fields.integer("rope.dimension_count", size), values.pop("rope_theta")
    values.pop("partial_rotary_factor", None)
    scaling = values.pop("rope_scaling", {"rope_type": "default"})
    if "long_factor" in scaling:  # llama.cpp takes as many of the divisors as it rotates
        factors = scaling["long_factor"][: rotated // 4]
        scaling |= {"long_factor": factors, "short_factor": factors}
    sparse = [source.file.has(f"blk.{layer}.ffn_gate_inp.weight") for layer in range(layers)]
    return {
        **values,
        "layer_types": kinds,
        "mlp_layer_types": ["sparse" if one else "dense" for one in sparse],
        "moe_intermediate_size": fields.integer(_INNER),
        "moe_router_scaling_factor": fields.number(_SCALE, 1.0),
        "n_routed_experts": fields.integer("expert_count"),
        "num_experts_per_tok": fields.integer("expert_used_count"),
        "num_nextn_predict_layers": further,
        "num_sliding_attention_heads": sliding,
        "rope_parameters": {
            FULL: {**scaling, "rope_theta": base, "partial_rotary_factor": rotated / size / 2},
            SLIDING: {
                "rope_type": "default",
                "rope_theta": fields.number("rope.freq_base_swa", base, above=1.0),
                "partial_rotary_factor": rotated / size,
            },
        },
        "share_expert_dim": fields.integer("expert_shared_feed_forward_length"),
        "sliding_window": fields.integer(WINDOW),
    }


def _pattern(fields: ConfigFields, layers: int) -> Values:
    """Returns the list of layers with windows, without those of layers that predict further tokens."""
    slides = fields.values.get(_PATTERN)
    return {_PATTERN.replace(".", "__"): slides[:layers]} if isinstance(slides, list) else {}


def _one_each(fields: ConfigFields, name: str, kinds: list[str]) -> dict[str, int]:
    """Returns a number for each type of layers, of a number for each layer or for all."""
    values = fields.values.get(name)
    if not isinstance(values, list):
        return dict.fromkeys(kinds, fields.integer(name))
    by_type: dict[str, int] = {}
    right = len(values) >= len(kinds) and all(type(value) is int and value > 0 for value in values)
    if not right or any(by_type.setdefault(kind, value) != value for kind, value in zip(kinds, values, strict=False)):
        fields.refuse(name, "a number for each layer, the same one in layers of one type")
    return by_type


_CLAMPS: Final = ("swiglu_clamp_exp", "swiglu_clamp_shexp")
_PATTERN: Final = "attention.sliding_window_pattern"
_EXPERTS: Final = frozenset({"expert_count", "expert_shared_count", _DENSE, _SCALE})
_ARCTIC_NAMES: Final = {"residual_layernorm": "ffn_norm", "post_attention_layernorm": "ffn_norm_exps"}
_ARCTIC_TENSORS: Final = {
    "block_sparse_moe.gate.weight": "ffn_gate_inp.weight",
    "block_sparse_moe.experts.gate_proj": "ffn_gate_exps.weight",
    "block_sparse_moe.experts.up_proj": "ffn_up_exps.weight",
    "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
}
_GROK_NAMES: Final = {
    "post_attention_layernorm": "attn_output_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.shared_experts.gate_proj": "ffn_gate",
    "mlp.shared_experts.up_proj": "ffn_up",
    "mlp.shared_experts.down_proj": "ffn_down",
}
_PLAMO_NORMS: Final = {  # whose names lack a kind
    "post_attention_layernorm.weight": "post_attention_norm",
    "post_feedforward_layernorm.weight": "post_ffw_norm",
}
_GROK_READS: Final = frozenset(
    {
        "expert_count", "attn_logit_softcapping", "attention.output_scale", "embedding_scale", "logit_scale",
        "final_logit_softcapping",
    }
)  # fmt: skip

OWN_KINDS: Final = (
    GgufArchitecture("deepseek", _deepseek, _EXPERTS, permuted=True),
    GgufArchitecture("deepseek2-ocr", _deepseek, _EXPERTS),
    GgufArchitecture("bailingmoe", _bailing, _EXPERTS, permuted=True),
    GgufArchitecture(
        "bailingmoe2",
        _bailing2,
        _EXPERTS | {"expert_group_count", "nextn_predict_layers"},
        forms=FUSED_QKV,
    ),
    GgufArchitecture(
        "arctic",
        _arctic,
        frozenset({"expert_count"}),
        permuted=True,
        names=_ARCTIC_NAMES,
        tensors=_ARCTIC_TENSORS,
    ),
    GgufArchitecture("grok", _grok, _GROK_READS, names=_GROK_NAMES),
    GgufArchitecture("jais", _jais, frozenset({_BIAS_MAX}), forms=FUSED_QKV),
    GgufArchitecture("openelm", _openelm, forms=FUSED_QKV),
    GgufArchitecture("refact", _refact),
    GgufArchitecture("smallthinker", _smallthinker, frozenset({"expert_count", WINDOW})),
    GgufArchitecture("plamo", _plamo),
    GgufArchitecture(
        "plamo3",
        _plamo3,
        frozenset({WINDOW}),
        names={"pre_feedforward_layernorm": "ffn_norm"},
        tensors=_PLAMO_NORMS,
        forms=FUSED_QKV | {"ffn_up"},
    ),
    GgufArchitecture("maincoder", _maincoder),
    GgufArchitecture("hunyuan_vl", _hunyuan_vl),
    GgufArchitecture(
        "step35",
        _step35,
        _EXPERTS | {WINDOW, "nextn_predict_layers"},
        tensors={"self_attn.g_proj.weight": "attn_gate.weight"},
    ),
)
