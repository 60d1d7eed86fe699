"""Files whose architecture is another one's model: decoders of Qwen-VL, Nemotron NAS, Pangu; and DBRX, MiMo 2."""

from typing import Final

from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import (
    WINDOW,
    Source,
    Values,
    biases,
    common,
    layer_types,
    tied,
    vocabulary,
    window,
    with_fields,
)
from transformer_core.models.gguf.readers._rope import rope_values

_CLAMP: Final = "attention.clamp_kqv"
_SIGMOID: Final = 2  # llama.cpp's number of the function that makes scores of a router's logits
FULL, SLIDING = "full_attention", "sliding_attention"
_LISTED: Final = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")


def _deci(source: Source) -> Values:
    """Returns the fields of Nemotron NAS, as those of a Llama: only layers of one kind are built."""
    fields = source.fields
    equal = {name: fields.values[name] for name in _LISTED if fields.has(name)}
    for name, value in equal.items():
        if isinstance(value, list):
            if len(set(value)) != 1:
                fields.refuse(name, "the same number for each layer: layers without attention or of other sizes")
            equal[name] = value[0]
    return common(with_fields(source, **equal), "LlamaForCausalLM", "llama", **biases(source))


def _llama(source: Source) -> Values:
    return common(source, "LlamaForCausalLM", "llama", **biases(source))


def _qwen2(source: Source) -> Values:
    return common(source, "Qwen2ForCausalLM", "qwen2", use_sliding_window=False)


def _qwen3(source: Source) -> Values:
    return common(source, "Qwen3ForCausalLM", "qwen3", use_sliding_window=False)


def _qwen3_moe(source: Source) -> Values:
    fields = source.fields
    inner = fields.integer("expert_feed_forward_length")
    return common(
        with_fields(source, feed_forward_length=fields.integer("feed_forward_length", inner)),
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        num_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        moe_intermediate_size=inner,
        norm_topk_prob=True,
    )


def _codeshell(source: Source) -> Values:
    """Returns the fields of CodeShell, as those of a StarCoder2."""
    values = common(source, "Starcoder2ForCausalLM", "starcoder2", layer_norm=True)
    return {
        "norm_epsilon": values.pop("layer_norm_eps"),
        **values,
        "use_bias": True,
        "sliding_window": None,
        "hidden_act": "gelu_pytorch_tanh",
    }


def _dbrx(source: Source) -> Values:
    fields = source.fields
    heads, hidden = fields.integer("attention.head_count"), fields.integer("embedding_length")
    clip = fields.number(_CLAMP, 0.0, above=-1.0)
    experts = {
        "ffn_hidden_size": fields.integer("feed_forward_length"),
        "moe_num_experts": fields.integer("expert_count"),
        "moe_top_k": fields.integer("expert_used_count"),
    }
    if fields.number("attention.layer_norm_epsilon", 1e-5) != 1e-5:
        fields.refuse("attention.layer_norm_epsilon", "1e-05, which DBRX has")
    rope = rope_values(source.file, fields, hidden // heads)
    return {
        "architectures": ["DbrxForCausalLM"],
        "model_type": "dbrx",
        "vocab_size": vocabulary(source),
        "d_model": hidden,
        "n_heads": heads,
        "n_layers": fields.integer("block_count"),
        "max_seq_len": rope.pop("max_position_embeddings"),
        **rope,
        "attn_config": {"kv_n_heads": fields.integer("attention.head_count_kv", heads), "clip_qkv": clip or None},
        "ffn_config": experts,
        "tie_word_embeddings": tied(source),
    }


def _mimo2(source: Source) -> Values:
    """Returns the fields of MiMo-V2-Flash; llama.cpp scales no values."""
    fields = source.fields
    kinds = layer_types(fields, 6, first=True)["layer_types"]
    counts = fields.values.get("attention.head_count_kv")
    counts = counts if isinstance(counts, list) else [fields.integer("attention.head_count_kv")] * len(kinds)
    least = min(counts) if counts else 1
    doubled = [least * (2 if kind == SLIDING and FULL in kinds else 1) for kind in kinds]
    if counts != doubled:
        fields.refuse("attention.head_count_kv", f"twice as many in layers with a window: {doubled}")
    if fields.integer("expert_gating_func", _SIGMOID, minimum=0) != _SIGMOID:
        fields.refuse("expert_gating_func", f"{_SIGMOID}, the logistic function")
    size = fields.integer("attention.key_length")
    plain = with_fields(source, attention__head_count_kv=least, attention__value_length=size)
    values = common(plain, "MiMoV2FlashForCausalLM", "mimo_v2_flash")
    share = {"rope_type": "default", "partial_rotary_factor": fields.integer("rope.dimension_count", size) / size}
    base = values.pop("rope_theta")
    sparse = [source.file.has(f"blk.{layer}.ffn_gate_inp.weight") for layer in range(len(kinds))]
    values.pop("partial_rotary_factor", None)
    return {
        **values,
        "num_key_value_heads": least if FULL in kinds else least // 2,
        "v_head_dim": fields.integer("attention.value_length", size),
        "attention_value_scale": None,
        "layer_types": kinds,
        "mlp_layer_types": ["sparse" if one else "dense" for one in sparse],
        "sliding_window": window(fields),
        "rope_parameters": {
            FULL: {**share, "rope_theta": base},
            SLIDING: {**share, "rope_theta": fields.number("rope.freq_base_swa", base, above=1.0)},
        },
        "n_routed_experts": fields.integer("expert_count"),
        "num_experts_per_tok": fields.integer("expert_used_count"),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
        "norm_topk_prob": True,
        "routed_scaling_factor": fields.number("expert_weights_scale", 1.0),
    }


NAMED_KINDS: Final = (
    GgufArchitecture("mimo2", _mimo2, frozenset({"expert_count", "expert_weights_scale", WINDOW})),
    GgufArchitecture("deci", _deci, permuted=True),
    GgufArchitecture("pangu-embedded", _llama),
    GgufArchitecture("qwen2vl", _qwen2),
    GgufArchitecture("qwen3vl", _qwen3),
    GgufArchitecture("qwen3vlmoe", _qwen3_moe, frozenset({"expert_count"})),
    GgufArchitecture("paddleocr", _llama),
    GgufArchitecture("codeshell", _codeshell),
    GgufArchitecture(
        "dbrx",
        _dbrx,
        frozenset({_CLAMP, "expert_count"}),
        names={"post_attention_layernorm": "attn_output_norm"},
    ),
)
