"""Metadata of a decoder: what each field of a GGUF file says about a configuration, whatever the architecture.

Which fields a file has, its architecture's reader tells (``_plan``): those that it asks for.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any, Final

from transformer_core.layers._rope_scaling import LinearScaling, LongropeScaling, YarnScaling
from transformer_core.layers._routing import Scoring
from transformer_core.models import DecoderConfig, DeltaConfig, Mamba2Config, MixerConfig, ShortConvConfig

Values = dict[str, Any]

ALWAYS: Final = (
    "context_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv", "rope.dimension_count",
    "rope.dimension_sections", "expert_gating_func", "expert_shared_count", "expert_shared_feed_forward_length",
    "expert_weights_norm", "expert_weights_scale", "full_attention_interval", "use_parallel_residual",
    "tensor_data_layout",
)  # fmt: skip
"""Fields that llama.cpp wants of architectures whose configuration does not depend on them."""

_ATTENDING: Final = ("attention", "full_attention")
_WIDE: Final = ("mlp", "moe")
_SCORINGS: Final = {Scoring.SOFTMAX: 1, Scoring.SIGMOID: 2, Scoring.MIXER: 1}
_LENGTHS: Final = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
_UNBOUNDED: Final = (1 << 31) - 1
_ANY: Final = 1 << 20  # positions of models without any
_PARTS: Final = ("rope_parameters", "rope_scaling", "attn_config")


class Raw:
    """Fields of a config.json by the names that families have for them; those of a text model inside come first."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        inner = values.get("text_config")
        outer = [values] if not isinstance(inner, Mapping) else [inner, values]
        nested = [part[name] for part in outer for name in _PARTS if isinstance(part.get(name), Mapping)]
        full = [part["full_attention"] for part in nested if isinstance(part.get("full_attention"), Mapping)]
        self._parts: Final = [*outer, *nested, *full]

    def __call__(self, *names: str) -> Any:
        """Returns the first of the fields that is there and not null."""
        values = (part.get(name) for name in names for part in self._parts)
        return next((value for value in values if value is not None), None)


def answers(config: DecoderConfig, raw: Raw) -> Values:
    """Returns the fields that say something about a decoder, without the architecture's name before them."""
    values: Values = {}
    for part in (_sizes, _rope, _windows, _scales, _experts, _latent, _states, _others):
        values |= part(config, raw)
    return {key: value for key, value in values.items() if value is not None}


def _sizes(config: DecoderConfig, raw: Raw) -> Values:
    sizes = [config.sizes_of(index) for index in range(config.layers)]
    whole = next((size for size, seen in zip(sizes, config.windows, strict=False) if seen is None), sizes[0])
    local = next((size for size, seen in zip(sizes, config.windows, strict=False) if seen is not None), whole)
    kv = [size.kv_heads for size in sizes]
    if _is_mixed(config.mixer) and not isinstance(config.mixer, DeltaConfig):
        assert config.mixer is not None
        kv = [0 if mixes else count for mixes, count in zip(config.mixer.layers, kv, strict=True)]
    rotates, stateful = config.rotates, config.mixer is not None and all(config.mixer.layers)
    pure = stateful and config.architecture.startswith(("Mamba", "FalconMamba"))
    return {
        "context_length": config.learned_positions or (_length(config) or raw(*_LENGTHS) or _ANY),
        "embedding_length": config.hidden,
        "block_count": config.layers,
        "feed_forward_length": 0 if pure else _one([size.intermediate for size in sizes]),
        "attention.head_count": 0 if pure else config.heads,
        "attention.head_count_kv": _one(kv),
        "attention.key_length": whole.head_size,
        "attention.value_length": whole.head_size,
        "attention.key_length_swa": local.head_size,
        "attention.value_length_swa": local.head_size,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "attention.layer_norm_epsilon": config.norm_eps,
        "rope.dimension_count": whole.head_size if config.layer_sizes or not rotates else config.rope.rotated,
        "rope.dimension_count_swa": local.head_size,
    }


def _length(config: DecoderConfig) -> int | None:
    """Returns the trained length; None if positions are not bounded."""
    length = config.rope.trained_length
    return length if length < _UNBOUNDED else None


def _is_mixed(mixer: MixerConfig | None) -> bool:
    """Returns whether some layers have the mixer, and others attention."""
    return mixer is not None and len({*mixer.layers}) == 2


def _one(numbers: list[int]) -> int | list[int]:
    return numbers[0] if len({*numbers}) == 1 else numbers


def _rope(config: DecoderConfig, raw: Raw) -> Values:
    scaling = config.rope.scaling
    values: Values = {
        "rope.freq_base": config.rope.base,
        "rope.freq_base_swa": None if config.local_rope is None else config.local_rope.base,
        "rope.scaling.finetuned": config.rotates,
    }
    if isinstance(scaling, LinearScaling):
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.factor}
    if isinstance(scaling, YarnScaling):
        values |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": scaling.factor,
            "rope.scaling.original_context_length": scaling.original_length,
            "rope.scaling.yarn_beta_fast": scaling.beta_fast,
            "rope.scaling.yarn_beta_slow": scaling.beta_slow,
            "rope.scaling.yarn_attn_factor": raw("attention_factor"),
        }
    if isinstance(scaling, LongropeScaling):
        values |= {
            "rope.scaling.original_context_length": scaling.original_length,
            "rope.scaling.attn_factor": scaling.factor_of_attention,
        }
    growth = config.query_growth
    if growth is not None:
        values |= {
            "attention.temperature_scale": growth.weight,
            "rope.scaling.original_context_length": growth.length,
            "rope.scaling.yarn_log_multiplier": raw("mscale_all_dim"),
        }
    return values


def _windows(config: DecoderConfig, raw: Raw) -> Values:
    seen = next((window for window in config.windows if window is not None), None)
    if seen is None or config.chunked:
        return {}
    return {
        "attention.sliding_window": seen,
        "attention.sliding_window_pattern": [window is not None for window in config.windows],
    }


def _scales(config: DecoderConfig, raw: Raw) -> Values:
    return {
        "attention.scale": raw("attention_multiplier"),
        "embedding_scale": raw("embedding_multiplier"),
        "residual_scale": raw("residual_multiplier"),
        "logit_scale": raw("logits_scaling", "logit_scale"),
        "attn_logit_softcapping": config.softcap,
        "final_logit_softcapping": config.logits_softcap,
        "attention.clamp_kqv": config.qkv_clip,
        "attention.max_alibi_bias": None if config.alibi is None else float(raw("alibi_bias_max") or 8.0),
        "use_parallel_residual": config.parallel,
    }


def _experts(config: DecoderConfig, raw: Raw) -> Values:
    experts = config.experts
    if experts is None:
        return {}
    routing, sparse = experts.routing, [*experts.layers]
    first = sparse.index(True) if True in sparse else 0
    step = next((index for index, flag in enumerate(sparse[first + 1 :], 1) if flag), 1)
    inner = experts.inner
    return {
        "expert_count": routing.experts,
        "expert_used_count": routing.chosen,
        "expert_feed_forward_length": inner,
        "expert_shared_feed_forward_length": experts.shared or None,
        "expert_shared_count": experts.shared // inner if experts.shared % inner == 0 else None,
        "leading_dense_block_count": first,
        "interleave_moe_layer_step": step,
        "expert_weights_scale": routing.scale,
        "expert_weights_norm": routing.normalized,
        "expert_gating_func": _SCORINGS[routing.scoring],
        "expert_group_count": routing.groups,
        "expert_group_used_count": routing.chosen_groups,
    }


def _latent(config: DecoderConfig, raw: Raw) -> Values:
    latent = config.latent
    if latent is None:
        return {}
    rotated = config.rope.rotated
    values = {
        "attention.kv_lora_rank": latent.rank,
        "attention.q_lora_rank": latent.query_rank,
        "rope.dimension_count": rotated,
        "rope.scaling.yarn_attn_factor": None,
        "rope.scaling.yarn_log_multiplier": None if raw("mscale_all_dim") is None else 0.1 * raw("mscale_all_dim"),
    }
    if config.architecture.startswith("MiniCPM3"):
        size = latent.plain_size + rotated
        return {**values, "attention.key_length": size, "attention.value_length": latent.value_size}
    return {
        **values,
        "attention.head_count_kv": 1,
        "attention.key_length": latent.rank + rotated,
        "attention.value_length": latent.rank,
        "attention.key_length_mla": latent.plain_size + rotated,
        "attention.value_length_mla": latent.value_size,
    }


def _states(config: DecoderConfig, raw: Raw) -> Values:
    mixer = config.mixer
    if mixer is None:
        return {}
    if isinstance(mixer, ShortConvConfig):
        return {"shortconv.l_cache": mixer.taps}
    if isinstance(mixer, DeltaConfig):
        return _delta(mixer, config.layers)
    sizes: Any = mixer.sizes  # type: ignore[attr-defined]
    values: Values = {"ssm.conv_kernel": sizes.taps, "ssm.state_size": sizes.state_size}
    if isinstance(mixer, Mamba2Config):
        return values | {
            "ssm.inner_size": sizes.heads * sizes.head_size,
            "ssm.time_step_rank": sizes.heads,
            "ssm.group_count": sizes.groups,
        }
    normed = config.architecture.startswith("FalconMamba")
    return values | {"ssm.inner_size": sizes.inner, "ssm.time_step_rank": sizes.rank, "ssm.dt_b_c_rms": normed}


def _delta(mixer: DeltaConfig, layers: int) -> Values:
    values: Values = {
        "ssm.conv_kernel": mixer.taps,
        "ssm.state_size": mixer.key_size,
        "ssm.group_count": mixer.key_heads,
        "ssm.time_step_rank": mixer.value_heads,
        "ssm.inner_size": mixer.value_heads * mixer.value_size,
    }
    for every in range(2, layers + 1):
        if [*mixer.layers] == [bool((index + 1) % every) for index in range(layers)]:
            values["full_attention_interval"] = every
            break
    return values | {"attention.recurrent_layers": [*mixer.layers]}


def _others(config: DecoderConfig, raw: Raw) -> Values:
    shared = sum(owner is not None for owner in config.cache_owners)
    sections = raw("mrope_section")
    values: Values = {
        "rope.dimension_sections": [*sections, 0, 0, 0, 0][:4] if sections else None,
        "tensor_data_layout": "jploski" if config.architecture.startswith("Falcon") else None,
        "attention.shared_kv_layers": shared if config.cache_owners else raw("num_kv_shared_layers"),
        "embedding_length_per_layer_input": 0 if config.per_layer is None else config.per_layer.size,
        "nextn_predict_layers": 0,  # prediction heads are not written
        "moe_latent_size": raw("moe_latent_size"),
    }
    kinds = raw("layers_block_type")
    if config.architecture.startswith("NemotronH") and isinstance(kinds, list):
        values["attention.head_count_kv"] = [config.kv_heads if kind in _ATTENDING else 0 for kind in kinds]
        inner = config.intermediate if config.experts is None else config.experts.inner
        values["feed_forward_length"] = [inner if kind in _WIDE else 0 for kind in kinds]
    altup = config.altup
    if altup is not None:
        shares = altup.sparsities
        values["activation_sparsity_scale"] = [NormalDist().inv_cdf(share) if share else -math.inf for share in shares]
        values |= {"altup.active_idx": altup.active, "altup.num_inputs": altup.copies}
    return values
