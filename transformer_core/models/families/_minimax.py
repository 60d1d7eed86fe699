"""MiniMax-01 (arXiv:2501.08313): a Mixtral with lightning attention in most layers, and scales of normed residuals."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from lang_core import ConfigError, DType, ExecutionContext, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of, heads_of, kinds_of_layers, llama_kind, whole_rope
from transformer_core.family._layer import attention, feed_forward, norm
from transformer_core.family._layer_configs import ExpertsConfig, MixerConfig
from transformer_core.layers._cache import CachedLayer, CacheLayout, StateMixer
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._lightning_attention import LightningAttention
from transformer_core.layers._routing import Routing
from transformer_core.layers._step import StepInputs

_LINEAR, _FULL = "linear_attention", "full_attention"
_BASE: Final = 1e6
_BUFFERS: Final = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class LightningConfig(MixerConfig):
    """Layers with lightning attention, and scales of the residuals of all layers.

    Attributes:
        heads: N.
        head_size: H.
        activation: activation of queries, keys and values.
        linear: factors of the residual and of what is added to it, in layers with lightning attention.
        full: these factors in layers with attention.
        mlp: these factors of the experts.
    """

    NAME: ClassVar[str] = "self_attn"
    heads: int
    head_size: int
    activation: Activation
    linear: tuple[float, float]
    full: tuple[float, float]
    mlp: tuple[float, float]

    def made(self, size: int, norm_eps: float, dtype: DType, index: int = 0) -> StateMixer:
        """Makes the attention of a layer, whose heads forget the slower the deeper it lies."""
        del norm_eps
        depth = 1 - index / (len(self.layers) - 1 + 1e-5) + 1e-5
        rates = tuple(2.0 ** (-8.0 * (head + 1) / self.heads) * depth for head in range(self.heads))
        return LightningAttention(size, rates, self.head_size, self.activation, dtype=dtype)


class _Layer(CachedLayer):
    """Layer ``y = norm(a norm(x) + b attention(norm(x)))``, then ``c y + d experts(y)``."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        mixer = config.mixer
        if not isinstance(mixer, LightningConfig):
            raise ConfigError(f"{config.architecture}: expected a mixer with scales; found {mixer}")
        self.linear = mixer.layers[index]
        self.factors, self.mlp_factors = (mixer.linear if self.linear else mixer.full), mixer.mlp
        made = mixer.made(config.hidden, config.norm_eps, dtype, index) if self.linear else None
        self.self_attn = attention(config, index, dtype) if made is None else made
        self.mlp = feed_forward(config, index, dtype)
        self.input_layernorm, self.post_attention_layernorm = norm(config, dtype), norm(config, dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: Any = None) -> tuple[Tensor, Any]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        x = self.input_layernorm(ctx, ctx.tag(x, "input"))
        if isinstance(self.self_attn, LightningAttention):
            mixed, cache = self.self_attn(ctx, x, cache, step.count)
        else:
            mixed, cache = self.self_attn(ctx, x, step, cache)
        y = _sum(ctx, x, ctx.tag(mixed, "self_attn.output"), self.factors)
        y = self.post_attention_layernorm(ctx, y)
        forwarded = ctx.tag(self.mlp(ctx, y), "mlp.output")
        return ctx.tag(_sum(ctx, y, forwarded, self.mlp_factors), "output"), cache

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns attention's layout."""
        return self.self_attn.cache_layout(batch, capacity)


def _sum(ctx: ExecutionContext, x: Tensor, more: Tensor, factors: tuple[float, float]) -> Tensor:
    return ctx.ops.add(ctx.ops.mul(x, factors[0]), ctx.ops.mul(more, factors[1]))


def _read(fields: ConfigFields) -> DecoderConfig:
    fields = ConfigFields({"num_key_value_heads": 8, **fields.values}, fields.where)
    fields = fields.renamed({"num_local_experts": "num_experts"})
    heads, kv_heads, head_size = heads_of(fields)
    layers = fields.integer("num_hidden_layers")
    kinds = kinds_of_layers(fields, (_LINEAR, _FULL), [_LINEAR if index % 2 else _FULL for index in range(layers)])
    routing = Routing(experts=fields.integer("num_local_experts", 8), chosen=fields.integer("num_experts_per_tok", 2))
    activation = activation_of(fields, default="silu")
    if fields.has("sliding_window"):
        fields.refuse("sliding_window", "null: with windows, transformers' cached steps and its forward disagree")
    return llama_kind(
        fields,
        MINIMAX.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=fields.number("rms_norm_eps", 1e-5),
        rope=whole_rope(fields, MINIMAX.architecture, head_size, default_base=_BASE),
        activation=activation,
        windows=(None,) * layers,
        experts=ExpertsConfig(routing=routing, inner=fields.integer("intermediate_size"), layers=(True,) * layers),
        mixer=LightningConfig(
            layers=tuple(kind == _LINEAR for kind in kinds),
            heads=heads,
            head_size=head_size,
            activation=activation,
            linear=_factors(fields, "linear_attn"),
            full=_factors(fields, "full_attn"),
            mlp=_factors(fields, "mlp"),
        ),
    )


def _factors(fields: ConfigFields, name: str) -> tuple[float, float]:
    """Reads the factors of the residual and of what is added to it."""
    return fields.number(f"{name}_alpha_factor", 1.0), fields.number(f"{name}_beta_factor", 1.0)


_KEYS: Final = ExpertKeys(layer="block_sparse_moe", gate="w1", up="w3", down="w2")
MINIMAX: Final = Family(
    "MiniMaxForCausalLM",
    "minimax",
    _read,
    _Layer,
    lambda config: _KEYS,
    ignorable=tuple(f"*.self_attn.{name}" for name in _BUFFERS),
)
