"""A.X K1: DeepSeek-V3's latent attention and experts, whose sum is normed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lang_core import DType, ExecutionContext, Module, Tensor
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf, RenamedParts, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import kinds_of_layers
from transformer_core.family._layer import DecoderLayer, norm
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._rope_config import RopeMode
from transformer_core.models.families._deepseek import grouped_experts, latent_kind

# In the layer in published files, and in the feed-forward in transformers.
_PARTS: Final = RenamedParts({"post_feedforward_layernorm": ("post_mlp_layernorm", "mlp.post_mlp_layernorm")})


class _NormedExpertsLayer(DecoderLayer):
    """Layer ``x + attention(norm(x))``, then ``x + norm(experts(norm(x)))``."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.post_feedforward_layernorm = norm(config, dtype)

    def forwarded(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Computes the normed experts of x [B, T, D]."""
        return self.post_feedforward_layernorm(ctx, super().forwarded(ctx, x))


def _read(fields: ConfigFields) -> DecoderConfig:
    layers, every = fields.integer("num_hidden_layers"), fields.integer("moe_layer_freq", 1)
    experts = grouped_experts(fields, dense=1, scale=2.5, groups=8, chosen_groups=4)
    default = ["sparse" if sparse and not index % every else "dense" for index, sparse in enumerate(experts.layers)]
    kinds = kinds_of_layers(fields, ("dense", "sparse"), default, "mlp_layer_types")
    if not fields.has("q_lora_rank"):
        fields.refuse("q_lora_rank", "an integer: queries are always compressed")
    if layers != len(kinds):
        fields.refuse("mlp_layer_types", f"a list of {layers}")
    return latent_kind(
        fields,
        AXK1.architecture,
        mode=RopeMode.INTERLEAVED if fields.boolean("rope_interleave", True) else RopeMode.SPLIT_HALF,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        experts=replace(experts, layers=tuple(kind == "sparse" for kind in kinds)),
    )


def _layer(config: DecoderConfig, index: int, dtype: DType) -> Module:
    experts: ExpertsConfig | None = config.experts
    make: Callable[[DecoderConfig, int, DType], Module] = DecoderLayer
    if experts is not None and experts.layers[index]:
        make = _NormedExpertsLayer
    return make(config, index, dtype)


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(_PARTS, ExpertKeys())


AXK1: Final = Family("AXK1ForCausalLM", "axk1", _read, _layer, _stored, ignorable=("*.post_mlp_layernorm.weight",))
