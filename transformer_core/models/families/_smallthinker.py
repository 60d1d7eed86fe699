"""SmallThinker (arXiv:2507.20984): a Llama whose experts are chosen before attention; relu, windows by turns."""

from typing import Final

from lang_core import ConfigError, ExecutionContext, Tensor
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, RecipeOf, RenamedParts, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import DecoderLayer
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._cache import Cache
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._moe import SparseFeedForward
from transformer_core.layers._rope_config import RopeKind
from transformer_core.layers._routing import Routing, Scoring
from transformer_core.layers._step import StepInputs

_SOFTMAX: Final = "moe_primary_router_apply_softmax"
_PARTS: Final = RenamedParts({".mlp.gate.": (".block_sparse_moe.primary_router.",)})
_EXPERTS: Final = ExpertKeys(layer="block_sparse_moe", gate="gate", up="up", down="down")


def _read(fields: ConfigFields) -> DecoderConfig:
    if not fields.boolean("moe_enable_early_router", True) or fields.boolean("moe_enable_secondary_experts", False):
        fields.refuse("moe_enable_early_router", "true, without secondary experts: other models are not built")
    if not fields.boolean("norm_topk_prob", True):
        fields.refuse("norm_topk_prob", "true: weights of experts that are not divided by their sum are not built")
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    layers = fields.integer("num_hidden_layers")
    windowed, rotated = _turns(fields, "sliding_window_layout", 0), _turns(fields, "rope_layout", 1)
    window = fields.integer("sliding_window_size", 4096) if any(windowed) else None
    routing = Routing(
        experts=fields.integer("moe_num_primary_experts"),
        chosen=fields.integer("moe_num_active_primary_experts"),
        scoring=Scoring.SOFTMAX if fields.boolean(_SOFTMAX, False) else Scoring.SIGMOID,
    )
    inner = fields.integer("moe_ffn_hidden_size")
    return llama_kind(
        fields,
        SMALLTHINKER.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        intermediate=inner,
        activation=Activation.RELU,
        windows=tuple(window if slides else None for slides in windowed),
        rope_kinds=tuple(RopeKind.MODEL if turns else RopeKind.NONE for turns in rotated),
        experts=ExpertsConfig(routing=routing, inner=inner, layers=(True,) * layers),
    )


def _turns(fields: ConfigFields, name: str, default: int) -> list[int]:
    layers, values = fields.integer("num_hidden_layers"), fields.values.get(name)
    if values is None:
        return [default] * layers
    if not isinstance(values, list) or len(values) != layers or any(value not in (0, 1) for value in values):
        fields.refuse(name, f"a list of {layers} (num_hidden_layers) of 0 or 1")
    return values


class EarlyRoutedLayer(DecoderLayer):
    """Layer ``x + attention(norm(x))``, then ``y + experts(norm(y))``, whose experts x chooses."""

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: Cache | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        if not isinstance(self.mlp, SparseFeedForward):
            raise ConfigError("an early router: expected experts in every layer; found a dense one")
        x = ctx.tag(x, "input")
        mixed, cache = self.mixed(ctx, self.normed(ctx, x), step, cache)
        y = ctx.ops.add(x, mixed)
        forwarded = self.mlp(ctx, self.post_attention_layernorm(ctx, y), chosen_by=x)
        return ctx.tag(ctx.ops.add(y, ctx.tag(forwarded, "mlp.output")), "output"), cache


def _stored(config: DecoderConfig) -> RecipeOf:
    return first_of(_PARTS, _EXPERTS)


SMALLTHINKER: Final = Family("SmallThinkerForCausalLM", "smallthinker", _read, EarlyRoutedLayer, _stored)
