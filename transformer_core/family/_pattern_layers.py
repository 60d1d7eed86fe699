"""Layers of one mixer each, with kinds from a pattern: state, attention, feed-forward, experts."""

from dataclasses import dataclass
from typing import Final

from lang_core import ConfigError, DType, Module, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig
from transformer_core.family._fields import activation_of
from transformer_core.family._layer import attention, state_mixer
from transformer_core.family._layer_configs import Mamba2Config
from transformer_core.family._mamba_fields import check_steps, divisor_in
from transformer_core.family._mixer_layer import MixerLayer
from transformer_core.layers._feed_forward import FeedForward
from transformer_core.layers._latent_experts import LatentExperts
from transformer_core.layers._mamba2 import Mamba2Sizes
from transformer_core.layers._routing import Routing, Scoring

# transformers' default; it holds prompts to it, but not the tokens after them: here both are.
_LEAST_STEP: Final = 0.001
STATE, ATTENTION, DENSE, EXPERTS = KINDS = ("linear_attention", "full_attention", "mlp", "moe")


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class PatternConfig(Mamba2Config):
    """Layers of one mixer each.

    Attributes:
        kinds: for each layer, one of ``KINDS``.
        routing: choice of experts.
        inner: F of one expert.
        shared: F of the shared expert.
        latent: size of the routed experts' input; D if None.
    """

    kinds: tuple[str, ...]
    routing: Routing
    inner: int
    shared: int
    latent: int | None = None


def pattern_config(fields: ConfigFields, kinds: tuple[str, ...]) -> PatternConfig:
    """Reads the Mamba-2 and the experts of a model of layers of these kinds, with transformers' defaults."""
    check_steps(fields)
    heads, biased = fields.integer("mamba_num_heads", 128), fields.boolean("use_bias", False)
    sizes = Mamba2Sizes(
        heads=heads,
        head_size=fields.integer("mamba_head_dim", 64),
        groups=divisor_in(fields, "n_groups", 8, heads),
        state_size=fields.integer("ssm_state_size", 128),
        taps=fields.integer("conv_kernel", 4),
        conv_bias=fields.boolean("use_conv_bias", True),
        bias=biased,
        output_bias=biased,
        activation=activation_of(fields, "mamba_hidden_act", "silu"),
        least_step=fields.number("time_step_min", _LEAST_STEP, above=-1.0),
    )
    return PatternConfig(
        layers=tuple(kind == STATE for kind in kinds),
        sizes=sizes,
        kinds=kinds,
        routing=_routing(fields),
        inner=fields.integer("moe_intermediate_size", 7688),
        shared=fields.integer("moe_shared_expert_intermediate_size", 7688),
        latent=fields.integer("moe_latent_size") if fields.has("moe_latent_size") else None,
    )


def _routing(fields: ConfigFields) -> Routing:
    return Routing(
        experts=fields.integer("n_routed_experts", 8),
        chosen=fields.integer("num_experts_per_tok", 2),
        scoring=Scoring.SIGMOID,
        normalized=fields.boolean("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", 1.0),
        corrected=True,
        groups=fields.integer("n_group", 1),
        chosen_groups=fields.integer("topk_group", 1),
    )


def pattern_layer(config: DecoderConfig, index: int, dtype: DType) -> MixerLayer:
    """Makes layer ``index`` of a model with a ``PatternConfig`` as ``mixer``.

    Raises:
        ConfigError: it is none.
    """
    return MixerLayer(config, dtype, _mixer(config, index, dtype))


def _mixer(config: DecoderConfig, index: int, dtype: DType) -> Module:
    pattern = config.mixer
    if not isinstance(pattern, PatternConfig):
        raise ConfigError(f"{config.architecture}: expected a mixer with the kinds of layers; found {pattern}")
    kind, activation, bias = pattern.kinds[index], config.activation, config.mlp_bias
    if kind == STATE:
        return state_mixer(config, dtype)
    if kind == ATTENTION:
        return attention(config, index, dtype)
    if kind == DENSE:
        return FeedForward(config.hidden, config.intermediate, activation=activation, bias=bias, dtype=dtype)
    sizes = {"shared": pattern.shared, "latent": pattern.latent}
    return LatentExperts(
        config.hidden, pattern.inner, pattern.routing, **sizes, activation=activation, bias=bias, dtype=dtype
    )
