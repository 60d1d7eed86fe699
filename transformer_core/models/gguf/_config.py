"""The config.json of a model in a GGUF file, from its metadata.

llama.cpp defines what the metadata mean: convert_hf_to_gguf.py writes them, and llama-model.cpp reads them.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from lang_core import ConfigError, near_names
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.gguf import GgufCheckpoint
from transformer_core.models.gguf._common import Source, Values, biased, common
from transformer_core.models.gguf._deepseek import deepseek
from transformer_core.models.gguf._layer_norm_configs import gpt2, gpt_neox, stablelm
from transformer_core.models.gguf._metadata_fields import architecture_of, model_fields, tokenizer_fields
from transformer_core.models.gguf._rope import FREQUENCIES

_LAYER: Final = re.compile(r"blk\.[0-9]{1,6}\.")
_WINDOW: Final = "attention.sliding_window"
_PATTERN: Final = "attention.sliding_window_pattern"

_MORE: Final = (
    "attention.clamp_kqv", "attention.max_alibi_bias", "attention.output_scale", "attention.scale",
    "attention.shared_kv_layers", "attn_logit_softcapping", "embedding_scale", "expert_count", "expert_group_count",
    "expert_shared_count", "expert_weights_scale", "final_logit_softcapping", "leading_dense_block_count",
    "logit_scale", "nextn_predict_layers", "residual_scale", "use_parallel_residual", _WINDOW,
)  # fmt: skip
"""Fields that change what a model computes; a file must not have those that its architecture does not read."""


class _Architecture(NamedTuple):
    """Description of the models of one ``general.architecture``.

    Attributes:
        read: returns the fields of config.json.
        reads: fields of ``_MORE`` that it takes into account.
        permuted: whether rows of queries and keys are stored for INTERLEAVED RoPE.
    """

    read: Callable[[Source], Values]
    reads: frozenset[str] = frozenset()
    permuted: bool = False


def config_values_of(file: GgufCheckpoint) -> Values:
    """Returns the values of the model's config.json.

    Raises:
        ConfigError: the architecture is not supported, or a field is missing, of the wrong type or out of range;
            names it.
    """
    name = architecture_of(file)
    known = _known(file, name)
    fields = model_fields(file, name)
    for key in _MORE:
        if key not in known.reads and fields.values.get(key):
            fields.refuse(key, f"no such field, or 0: {name} files are read without it")
    _check_layers(file, fields)
    return {**_tokens(file), **known.read(Source(file, fields))}


def is_permuted(file: GgufCheckpoint) -> bool:
    """Returns whether rows of queries and keys are stored for INTERLEAVED RoPE.

    Raises:
        ConfigError: as for ``config_values_of``.
    """
    return _known(file, architecture_of(file)).permuted


def _check_layers(file: GgufCheckpoint, fields: ConfigFields) -> None:
    """Refuses more layers than are stored, before a model is made of them."""
    layers = [int(key.split(".", 2)[1]) for key in file.keys() if _LAYER.match(key)]  # noqa: SIM118
    stored = max(layers, default=-1) + 1
    if fields.integer("block_count") > stored:
        fields.refuse("block_count", f"at most {stored}, the layers that the file has tensors of")


def _known(file: GgufCheckpoint, name: str) -> _Architecture:
    architecture = _ARCHITECTURES.get(name)
    if architecture is None:
        raise ConfigError(
            f"{file.path}: general.architecture: expected one of {', '.join(_ARCHITECTURES)}; "
            f"found {name!r}{near_names(name, _ARCHITECTURES)}: take the model's safetensors, if its family is one of "
            "those in README.md"
        )
    return architecture


def _tokens(file: GgufCheckpoint) -> Values:
    fields = tokenizer_fields(file)
    ends = [
        fields.integer(key, minimum=0) for key in ("eos_token_id", "eot_token_id", "eom_token_id") if fields.has(key)
    ]
    values: Values = {"eos_token_id": list(dict.fromkeys(ends))} if ends else {}
    if fields.has("bos_token_id"):
        values["bos_token_id"] = fields.integer("bos_token_id", minimum=0)
    return values


def _biases(source: Source) -> Values:
    return {"attention_bias": biased(source, "attn_q"), "mlp_bias": biased(source, "ffn_up")}


def _llama(source: Source) -> Values:
    """Returns the fields of Llama, or of what llama.cpp calls so: Mistral and Mixtral."""
    fields = source.fields
    if fields.values.get("expert_count"):
        experts = {
            "num_local_experts": fields.integer("expert_count"),
            "num_experts_per_tok": fields.integer("expert_used_count"),
            "sliding_window": _window(fields),
        }
        return common(source, "MixtralForCausalLM", "mixtral", **experts)
    if _window(fields):
        return common(source, "MistralForCausalLM", "mistral", sliding_window=_window(fields))
    return common(source, "LlamaForCausalLM", "llama", **_biases(source))


def _window(fields: ConfigFields) -> int | None:
    return fields.integer(_WINDOW, 0, minimum=0) or None


def _qwen2(source: Source) -> Values:
    return common(source, "Qwen2ForCausalLM", "qwen2", use_sliding_window=False)


def _qwen3(source: Source) -> Values:
    attention_bias = biased(source, "attn_q")
    return common(source, "Qwen3ForCausalLM", "qwen3", attention_bias=attention_bias, use_sliding_window=False)


def _qwen3_moe(source: Source) -> Values:
    fields = source.fields
    inner = fields.integer("expert_feed_forward_length")
    dense = {"feed_forward_length": inner, **fields.values}
    return common(
        Source(source.file, ConfigFields(dense, fields.where)),
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        attention_bias=biased(source, "attn_q"),
        use_sliding_window=False,
        moe_intermediate_size=inner,
        num_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        norm_topk_prob=fields.boolean("expert_weights_norm", True),  # llama.cpp always does
        decoder_sparse_step=1,
        mlp_only_layers=[],
    )


def _gemma(source: Source) -> Values:
    return common(source, "GemmaForCausalLM", "gemma", hidden_act="gelu_pytorch_tanh")


def _query_scalar(source: Source, largest: int) -> float:
    """Returns the square of what scores are divided by: H, but D / N in the model with that many layers (27B)."""
    fields = source.fields
    heads, hidden = fields.integer("attention.head_count"), fields.integer("embedding_length")
    if fields.integer("block_count") == largest:
        return hidden / heads
    return float(fields.integer("attention.key_length", hidden // heads))


def _caps(fields: ConfigFields) -> Values:
    names = ("attn_logit_softcapping", "final_logit_softcapping")
    return {name: fields.number(name) if fields.has(name) else None for name in names}


def _gemma2(source: Source) -> Values:
    return common(
        source,
        "Gemma2ForCausalLM",
        "gemma2",
        hidden_activation="gelu_pytorch_tanh",
        sliding_window=source.fields.integer(_WINDOW),
        query_pre_attn_scalar=_query_scalar(source, 46),
        **_caps(source.fields),
    )


def _gemma3(source: Source) -> Values:
    fields = source.fields
    return common(
        source,
        "Gemma3ForCausalLM",
        "gemma3_text",
        hidden_activation="gelu_pytorch_tanh",
        sliding_window=fields.integer(_WINDOW),
        query_pre_attn_scalar=_query_scalar(source, 62),
        rope_local_base_freq=fields.number("rope.freq_base_swa", 10000.0, above=1.0),
        **_layer_types(fields, 6),
        **_caps(fields),
    )


def _layer_types(fields: ConfigFields, every: int) -> Values:
    """Returns which layers have windows: all but every n-th, or as the file lists them."""
    layers, pattern = fields.integer("block_count"), fields.values.get(_PATTERN, every)
    if isinstance(pattern, list):
        if len(pattern) != layers or not all(isinstance(slides, bool) for slides in pattern):
            fields.refuse(_PATTERN, f"a number, or {layers} (block_count) of true and false")
        slides = pattern
    else:
        every = fields.integer(_PATTERN, every)
        slides = [bool((index + 1) % every) for index in range(layers)]
    return {"layer_types": ["sliding_attention" if windowed else "full_attention" for windowed in slides]}


def _phi3(source: Source) -> Values:
    return common(source, "Phi3ForCausalLM", "phi3", sliding_window=_window(source.fields))


def _granite(source: Source) -> Values:
    fields = source.fields
    scales = {
        "embedding_multiplier": fields.number("embedding_scale", 1.0),
        "residual_multiplier": fields.number("residual_scale", 1.0),
        "attention_multiplier": fields.number("attention.scale"),
        "logits_scaling": fields.number("logit_scale", 1.0),
    }
    return common(source, "GraniteForCausalLM", "granite", **scales, **_biases(source))


def _smollm3(source: Source) -> Values:
    return common(source, "SmolLM3ForCausalLM", "smollm3", no_rope_layer_interval=4, **_biases(source))


def _olmo2(source: Source) -> Values:
    return common(source, "Olmo2ForCausalLM", "olmo2", attention_bias=biased(source, "attn_q"))


def _gpt_oss(source: Source) -> Values:
    fields = source.fields
    inner = fields.integer("expert_feed_forward_length")
    known = {"feed_forward_length": inner, **fields.values}
    values = common(
        Source(source.file, ConfigFields(known, fields.where)),
        "GptOssForCausalLM",
        "gpt_oss",
        attention_bias=biased(source, "attn_q"),
        num_local_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        sliding_window=fields.integer(_WINDOW),
    )
    values["intermediate_size"] = inner
    if "rope_scaling" in values:
        values["rope_scaling"]["truncate"] = False  # of this family, which no field says
    return values


_CAPS: Final = frozenset({"attn_logit_softcapping", "final_logit_softcapping", _WINDOW})
_EXPERTS: Final = frozenset(
    {"expert_count", "expert_group_count", "expert_shared_count", "expert_weights_scale", "leading_dense_block_count"}
)
_SCALES: Final = frozenset({"embedding_scale", "residual_scale", "attention.scale", "logit_scale"})
_ARCHITECTURES: Final = {
    "llama": _Architecture(_llama, frozenset({"expert_count", _WINDOW}), permuted=True),
    "qwen2": _Architecture(_qwen2),
    "qwen3": _Architecture(_qwen3),
    "qwen3moe": _Architecture(_qwen3_moe, frozenset({"expert_count"})),
    "deepseek2": _Architecture(deepseek, _EXPERTS),
    "gpt-oss": _Architecture(_gpt_oss, frozenset({"expert_count", _WINDOW})),
    "gemma": _Architecture(_gemma),
    "gemma2": _Architecture(_gemma2, _CAPS),
    "gemma3": _Architecture(_gemma3, _CAPS),
    "phi3": _Architecture(_phi3, frozenset({_WINDOW})),
    "granite": _Architecture(_granite, _SCALES, permuted=True),
    "smollm3": _Architecture(_smollm3, permuted=True),
    "olmo2": _Architecture(_olmo2),
    "gpt2": _Architecture(gpt2),
    "gptneox": _Architecture(gpt_neox, frozenset({"use_parallel_residual"})),
    "stablelm": _Architecture(stablelm, frozenset({"use_parallel_residual"})),
}

ARCHITECTURES: Final = tuple(_ARCHITECTURES)
"""Values of ``general.architecture`` that are supported."""

IGNORABLE: Final = (*FREQUENCIES, "blk.*.attn_rot_embd.weight", "blk.*.rope_freqs.weight", "blk.*.attn.bias")
"""Tensors that are not read, because the configuration has what they hold."""
