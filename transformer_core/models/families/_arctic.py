"""Arctic (Snowflake): a dense feed-forward behind attention, and experts beside both, on the layer's input."""

from typing import Final

from lang_core import DType, ExecutionContext, Tensor, WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, Stacked, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import heads_of, llama_kind
from transformer_core.family._layer import AttentionLayer, norm
from transformer_core.family._layer_configs import ExpertsConfig
from transformer_core.layers._kv_cache import KVCache
from transformer_core.layers._moe import SparseFeedForward
from transformer_core.layers._routing import Routing
from transformer_core.layers._step import StepInputs

_DENSE: Final = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


def _read(fields: ConfigFields) -> DecoderConfig:
    if fields.integer("moe_layer_frequency", 2) != 1 or not fields.boolean("parallel_attn_mlp_res", False):
        fields.refuse(
            "moe_layer_frequency", "1, with parallel_attn_mlp_res: only layers with experts beside attention are built"
        )
    if not fields.boolean("use_residual", False):
        fields.refuse("use_residual", "true: layers without the dense feed-forward are not built")
    heads, kv_heads, head_size = heads_of(fields, kv_heads_default=True)
    routing = Routing(experts=fields.integer("num_local_experts"), chosen=fields.integer("num_experts_per_tok"))
    inner, layers = fields.integer("intermediate_size"), fields.integer("num_hidden_layers")
    return llama_kind(
        fields,
        ARCTIC.architecture,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        intermediate=fields.integer("hidden_size"),
        experts=ExpertsConfig(routing=routing, inner=inner, layers=(True,) * layers, beside=True),
    )


class ArcticLayer(AttentionLayer):
    """Layer ``y + mlp(norm(y)) + experts(norm(x))`` with ``y = x + attention(norm(x))``."""

    def __init__(self, config: DecoderConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        assert config.experts is not None
        inner, routing = config.experts.inner, config.experts.routing
        self.block_sparse_moe = SparseFeedForward(
            config.hidden, inner, routing, activation=config.activation, dtype=dtype
        )
        self.input_layernorm, self.residual_layernorm = norm(config, dtype), norm(config, dtype)
        self.post_attention_layernorm = norm(config, dtype)

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """Runs the layer on x [B, T, D]: the same shape, and the updated cache."""
        x = ctx.tag(x, "input")
        attended, cache = self.self_attn(ctx, self.input_layernorm(ctx, x), step, cache)
        y = ctx.ops.add(x, ctx.tag(attended, "self_attn.output"))
        dense = ctx.ops.add(y, ctx.tag(self.mlp(ctx, self.residual_layernorm(ctx, y)), "mlp.output"))
        sparse = self.block_sparse_moe(ctx, self.post_attention_layernorm(ctx, x))
        return ctx.tag(ctx.ops.add(dense, sparse), "output"), cache


def _stored(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of a feed-forward's part, under Mixtral's names."""
    above, _, path = name.partition(".block_sparse_moe.experts.")
    if path:
        keys = [f"{above}.block_sparse_moe.experts.{index}.{_DENSE[path]}.weight" for index in range(shape[0])]
        return Stacked(keys, shape[1:])
    above, _, path = name.partition(".mlp.")
    projection = path.partition(".")[0]
    return Stored(f"{above}.residual_mlp.{_DENSE[projection]}.weight", shape) if path else None


ARCTIC: Final = Family("ArcticForCausalLM", "arctic", _read, ArcticLayer, lambda config: _stored)
