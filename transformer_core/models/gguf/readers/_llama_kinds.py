"""Dense models that are nearly a Llama: OLMo, Ministral 3, Command R, EXAONE 4, Hunyuan, Apertus, ERNIE 4.5."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import AFTER_PARTS, GgufArchitecture
from transformer_core.models.gguf.readers._common import (
    WINDOW,
    Source,
    Values,
    biased,
    biases,
    common,
    layer_types,
    rotated_share,
    window,
)
from transformer_core.models.gguf.readers._rope import ORIGINAL

_TEMPERATURE: Final = "attention.temperature_scale"
_CLIP: Final = "attention.clamp_kqv"
_LOGIT_SCALE: Final = "logit_scale"
_LOG_MULTIPLIER: Final = "rope.scaling.yarn_log_multiplier"
_EXAONE_LAYERS: Final = 64  # of the model with windows, which early files do not say
_EXAONE_WINDOW: Final = 4096


def _olmo(source: Source) -> Values:
    """Returns the fields of OLMo-2 or, with windows, of OLMo-3; its layers with windows have an unscaled RoPE."""
    fields, bias = source.fields, biased(source, "attn_q")
    if not window(fields):
        return common(source, "Olmo2ForCausalLM", "olmo2", attention_bias=bias)
    windows = {"sliding_window": window(fields), **layer_types(fields, 4)}
    values = common(source, "Olmo3ForCausalLM", "olmo3", attention_bias=bias, **windows)
    base, scaling = values.pop("rope_theta"), values.pop("rope_scaling", {"rope_type": "default"})
    values["rope_parameters"] = {
        "full_attention": {**scaling, "rope_theta": base},
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": fields.number("rope.freq_base_swa", base, above=1.0),
        },
    }
    return values


def _mistral3(source: Source) -> Values:
    """Returns the fields of Ministral 3, with attention temperature scaling; of Mistral Small 3, without this field."""
    fields = source.fields
    if not fields.values.get(_TEMPERATURE):
        return common(source, "MistralForCausalLM", "mistral", sliding_window=window(fields))
    # One number of YaRN's two weights is stored; llama.cpp takes the other as 1.
    all_dims = fields.number(_LOG_MULTIPLIER) if fields.values.get(_LOG_MULTIPLIER) else None
    plain = {name: value for name, value in fields.values.items() if name != _LOG_MULTIPLIER}
    values = common(
        Source(source.file, ConfigFields(plain, fields.where)),
        "Ministral3ForCausalLM",
        "ministral3",
        sliding_window=window(fields),
    )
    values["rope_scaling"] = {
        **values.get("rope_scaling", {"rope_type": "default"}),
        **({} if all_dims is None else {"mscale": 1.0, "mscale_all_dim": all_dims}),
        "original_max_position_embeddings": fields.integer(ORIGINAL),
        "llama_4_scaling_beta": fields.number(_TEMPERATURE),
    }
    return values


def _olmo1(source: Source) -> Values:
    clip = source.fields.number(_CLIP) if source.fields.has(_CLIP) else None
    return common(source, "OlmoForCausalLM", "olmo", layer_norm=True, clip_qkv=clip)


def _cohere(source: Source) -> Values:
    return common(
        source,
        "CohereForCausalLM",
        "cohere",
        layer_norm=True,
        attention_bias=biased(source, "attn_q"),
        logit_scale=source.fields.number(_LOGIT_SCALE, 1.0),
        use_qk_norm=source.file.has("blk.0.attn_q_norm.weight"),
    )


def _cohere2(source: Source) -> Values:
    fields = source.fields
    return common(
        source,
        "Cohere2ForCausalLM",
        "cohere2",
        layer_norm=True,
        attention_bias=biased(source, "attn_q"),
        logit_scale=fields.number(_LOGIT_SCALE),
        sliding_window=fields.integer(WINDOW),
        **layer_types(fields, 4),
    )


def _exaone4(source: Source) -> Values:
    fields = source.fields
    seen = window(fields) or (_EXAONE_WINDOW if fields.integer("block_count") == _EXAONE_LAYERS else None)
    types = {} if seen is None else layer_types(fields, 4)
    return common(source, "Exaone4ForCausalLM", "exaone4", sliding_window=seen, **types)


def _hunyuan(source: Source) -> Values:
    """Returns the fields of Hunyuan; RoPE's base is stored as stretched."""
    return common(source, "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", attention_bias=biased(source, "attn_q"))


def _seed_oss(source: Source) -> Values:
    return common(
        source,
        "SeedOssForCausalLM",
        "seed_oss",
        attention_bias=biased(source, "attn_q"),
        attention_out_bias=biased(source, "attn_output"),
        mlp_bias=biased(source, "ffn_up"),
    )


def _ernie4_5(source: Source) -> Values:
    return common(source, "Ernie4_5ForCausalLM", "ernie4_5", use_bias=biased(source, "attn_q"))


def _arcee(source: Source) -> Values:
    return common(source, "ArceeForCausalLM", "arcee", hidden_act="relu2", **biases(source))


def _glm(source: Source, architecture: str = "GlmForCausalLM", model_type: str = "glm") -> Values:
    return common(
        source,
        architecture,
        model_type,
        attention_bias=biased(source, "attn_q") or biased(source, "attn_qkv"),
        partial_rotary_factor=rotated_share(source),
    )


def _glm4(source: Source) -> Values:
    return _glm(source, "Glm4ForCausalLM", "glm4")


def _apertus(source: Source) -> Values:
    """Returns the fields of Apertus, whose RoPE is that of the file also if nothing scales it."""
    values = common(
        source, "ApertusForCausalLM", "apertus", hidden_act="xielu", attention_bias=biased(source, "attn_q")
    )
    return {"rope_scaling": {"rope_type": "default"}, **values}


_XIELU: Final = ("alpha_p", "alpha_n", "beta", "eps")
_XIELU_TENSORS: Final = {f"mlp.act_fn.{name}": f"xielu.{name}" for name in _XIELU}
_XIELU_NUMBERS: Final = {f"xielu.{name}": (1,) if name.startswith("alpha") else () for name in _XIELU}
_FUSED_GATE: Final = frozenset({"ffn_up"})
_SEED_OSS_NAMES: Final = {"post_attention_layernorm": "post_attention_norm"}

OTHER_LLAMA_KINDS: Final = (
    GgufArchitecture("olmo", _olmo1, frozenset({_CLIP}), permuted=True),
    GgufArchitecture("olmo2", _olmo, frozenset({WINDOW}), names=AFTER_PARTS),
    GgufArchitecture("mistral3", _mistral3, frozenset({WINDOW, _TEMPERATURE}), permuted=True),
    GgufArchitecture("command-r", _cohere, frozenset({_LOGIT_SCALE})),
    GgufArchitecture("cohere2", _cohere2, frozenset({_LOGIT_SCALE, WINDOW})),
    GgufArchitecture("exaone4", _exaone4, frozenset({WINDOW}), names=AFTER_PARTS),
    GgufArchitecture("hunyuan-dense", _hunyuan),
    GgufArchitecture("seed_oss", _seed_oss, names=_SEED_OSS_NAMES),
    GgufArchitecture("ernie4_5", _ernie4_5),
    GgufArchitecture("apertus", _apertus, tensors=_XIELU_TENSORS, numbers=_XIELU_NUMBERS),
    GgufArchitecture("arcee", _arcee, permuted=True),
    GgufArchitecture("chatglm", _glm, forms=_FUSED_GATE),
    GgufArchitecture("glm4", _glm4, names=AFTER_PARTS, forms=_FUSED_GATE),
)
