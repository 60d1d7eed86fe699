"""WavLM (Chen et al. 2021, arXiv:2110.13900): a wav2vec 2.0 with biases of scores by distance, gated by each query."""

from typing import Final

from lang_core import DType, ExecutionContext, Parameter, Tensor, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.layers._linear import Linear
from transformer_core.layers._masks import token_distances
from transformer_core.layers._multi_head_attention import MultiHeadAttention, RopeTables
from transformer_core.layers._relative_bias import RelativeBias
from transformer_core.models.encoders._sound import SoundConfig, SoundLayer, SoundModel
from transformer_core.models.encoders._stack import EncoderLayer, StackConfig
from transformer_core.models.encoders._wav2vec2 import read_sound, sound_families

_GATES: Final = 8  # outputs of the gates' projection: four of each gate, which are added


class GatedBiasAttention(MultiHeadAttention):
    """Attention with biases of scores that each query multiplies by a number from 1 to 3 or so.

    In place of RoPE's tables ``forward`` takes the biases f32 [1, N, 1, T, T] and those that hide padding.
    """

    def __init__(self, config: StackConfig, dtype: DType) -> None:
        super().__init__(config.hidden, config.heads, dtype=dtype)
        self.gate = Linear(self.head_size, _GATES, bias=True, dtype=dtype)
        self.gate_scale = Parameter((1, self.heads, 1, 1), dtype)

    def forward(
        self,
        ctx: ExecutionContext,
        x: Tensor,
        bias: Tensor | None = None,
        tables: RopeTables | None = None,
        key_places: Tensor | None = None,
    ) -> Tensor:
        """Self-attention of x [B, T, D]: [B, T, D]; ``tables`` as of the class."""
        assert tables is not None  # the model gives some, and no bias beside them
        ops, (batch, tokens, _), (distances, padding) = ctx.ops, x.shape, tables
        gates = ops.reshape(self.gate(ctx, self._heads(ctx, x)), (batch, self.heads, tokens, 2, _GATES // 2))
        first, second = ops.split(ops.logistic(ops.sum(gates, (4,))), (1, 1), 3)
        scale = ops.mul(first, ops.sub(ops.mul(second, ctx.parameter(self.gate_scale)), 1.0))
        scale = ops.reshape(ops.cast(ops.add(scale, 2.0), f32), (batch, self.heads, 1, tokens, 1))
        return self.attend(ctx, x, self.keys_values(ctx, x), ops.add(ops.mul(distances, scale), padding))


class WavLMLayer(SoundLayer):
    """Layer with gated biases."""

    def __init__(self, config: SoundConfig, index: int, dtype: DType) -> None:
        super().__init__(config, index, dtype)
        self.self_attn = GatedBiasAttention(config.stack, dtype)


class WavLMModel(SoundModel):
    """WavLM; entry points as of ``SoundModel``."""

    NAMES: Final = {
        "distances": "encoder.layers.0.attention.rel_attn_embed",
        "layers.{}.self_attn.gate": "encoder.layers.{}.attention.gru_rel_pos_linear",
        "layers.{}.self_attn.gate_scale": "encoder.layers.{}.attention.gru_rel_pos_const",
    }

    def __init__(self, config: SoundConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        count, longest = config.buckets, config.longest
        self.distances = RelativeBias(count, config.stack.heads, buckets=count, longest=longest, dtype=self.dtype)

    def make_layer(self, index: int) -> EncoderLayer:
        """Makes a layer."""
        return WavLMLayer(self.config, index, self.dtype)

    def tables(self, ctx: ExecutionContext, padding: Tensor) -> tuple[Tensor | None, RopeTables | None]:
        """Returns the biases by distance and those that hide padding, as tables."""
        tokens = padding.shape[-1]
        return None, (self.distances.between(ctx, token_distances(ctx, tokens), tokens), padding)


def _read(fields: ConfigFields, architecture: str) -> SoundConfig:
    buckets, longest = fields.integer("num_buckets", 320, 4), fields.integer("max_bucket_distance", 800)
    if longest <= buckets // 4:
        fields.refuse("max_bucket_distance", f"more than a quarter of num_buckets ({buckets // 4})")
    return read_sound(fields, architecture, buckets=buckets, longest=longest)


WAVLM: Final = sound_families("WavLM", "wavlm", _read, WavLMModel)
