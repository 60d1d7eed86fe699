"""Sizes and options of attention."""

import enum
from dataclasses import dataclass

from lang_core import ConfigError, checked_choices
from transformer_core.layers._indexer import IndexerConfig
from transformer_core.layers._rope_config import RopeKind, RopeMode


class QueryKeyNormKind(enum.Enum):
    """The norms of queries and keys."""

    RMS = "rms"
    LAYER = "layer"
    """A layer norm with a bias, the same for each head (Phi)."""
    LAYER_PER_HEAD = "layer_per_head"
    """Layer norms without a bias, each head with a weight of its own (Command R+)."""


@checked_choices
@dataclass(frozen=True, slots=True)
class QueryKeyNorm:
    """Norms of queries and keys (Qwen3).

    Attributes:
        eps: added to the mean square, or to the variance.
        zero_centred: whether 1 is added to the norms' weights.
        whole: whether a norm goes over all heads at once (OLMo-2), and not over each head.
        after_rope: whether each head is normed after RoPE (Hunyuan), and not before.
        values: whether each head of values is normed too, without a weight (Gemma 3n).
        weighted: whether they have weights; those after RoPE need none (Llama 4).
        kind: kind of the norms; all but RMS norms are over each head, before RoPE.
    """

    eps: float
    zero_centred: bool = False
    whole: bool = False
    after_rope: bool = False
    values: bool = False
    weighted: bool = True
    kind: QueryKeyNormKind = QueryKeyNormKind.RMS

    def __post_init__(self) -> None:
        if self.whole and self.after_rope:
            raise ConfigError("norms of queries and keys: expected whole or after_rope; found both")
        if not self.weighted and not self.after_rope:
            raise ConfigError("norms of queries and keys: expected weights, or after_rope; found neither")
        if self.kind is not QueryKeyNormKind.RMS and (self.whole or self.after_rope or self.zero_centred):
            raise ConfigError(
                f"norms of queries and keys: kind {self.kind.value}: expected norms of each head before RoPE, not "
                f"zero-centred; found whole={self.whole}, after_rope={self.after_rope}, "
                f"zero_centred={self.zero_centred}"
            )


@checked_choices
@dataclass(frozen=True, slots=True)
class LayerRope:
    """RoPE of a layer.

    Attributes:
        mode: layout of the rotated pairs.
        kind: RoPE of the layer, of those that the step has.
    """

    mode: RopeMode = RopeMode.SPLIT_HALF
    kind: RopeKind = RopeKind.MODEL


@checked_choices
@dataclass(frozen=True, slots=True)
class QueryGrowth:
    """Factor of queries by their position: ``1 + weight * log(1 + floor((first + position) / length))`` (Ministral 3).

    Attributes:
        weight: factor of the logarithm.
        length: positions after which the factor grows by one step.
        first: number of the first position, 1 in Llama 4.
    """

    weight: float
    length: int
    first: int = 0


@checked_choices
@dataclass(frozen=True, slots=True)
class Alibi:
    """Biases of scores by position (ALiBi: Press et al. 2022, arXiv:2108.12409).

    Attributes:
        slopes: slope of each query head; a key's score is less by its head's slope for each position before the query.
        rounded: whether biases are rounded to bf16 and scaled as the scores (Falcon).
    """

    slopes: tuple[float, ...]
    rounded: bool = False


@checked_choices
@dataclass(frozen=True, slots=True)
class ScoreConfig:
    """Scaling of attention scores.

    Attributes:
        scale: factor of ``q k^T``; 1 / sqrt(H) if None.
        softcap: cap of the scores; see ``grouped_attention``.
        growth: growth of queries with their position; none if None.
        alibi: biases by position; none if None.
    """

    scale: float | None = None
    softcap: float | None = None
    growth: QueryGrowth | None = None
    alibi: Alibi | None = None


@checked_choices
@dataclass(frozen=True, slots=True)
class CacheSharing:
    """Sharing of keys and values between layers.

    Attributes:
        owner: number of the layer to read keys and values of; the module then lacks projections of them, and
            ``forward`` takes that layer's cache. None: its own.
        lends: whether other layers read its keys and values; ``forward`` then returns them without a cache, too.
    """

    owner: int | None = None
    lends: bool = False


class OutputGate(enum.Enum):
    """Gate of attention's result, before the output projection."""

    HEAD_SIGMOID = "head_sigmoid"
    """One number per head, through a logistic function (LFM3)."""
    HEAD_SOFTPLUS = "head_softplus"
    """One number per head, through a softplus (Laguna)."""
    SOFTPLUS = "softplus"
    """One number per dim of a head, through a softplus."""


@checked_choices
@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """Sizes and options of ``Attention``.

    Attributes:
        size: D.
        heads: N.
        kv_heads: K, a divisor of N.
        head_size: H.
        qkv_bias: whether the projections of queries, keys and values have biases.
        output_bias: whether the output projection has one.
        gated: whether the query projection also gives a gate, per head after its query, and each head's result is
            multiplied by the gate's logistic (Qwen3-Next).
        sinks: whether each head has a learned score that takes part in the softmax, of a key without a value (gpt-oss).
        window: number of keys that a query sees, itself included; all if None.
        norm: norms of queries and keys; none if None.
        rope: rotation of queries and keys.
        scores: scaling of the scores.
        sharing: keys and values that other layers share.
        values_are_keys: whether the projection of keys gives the values too, before norm and RoPE (Gemma 4).
        clip: bound of queries, keys and values on both sides, after norms of all heads (OLMo); none if None.
        output_norm: eps of a norm over all heads before the output projection (BitNet); none if None.
        value_size: dims of a head's values; H if None.
        value_scale: factor of the values.
        gate: gate of attention's result by a projection of its own; none if None.

    Raises:
        ConfigError: K does not divide N, or the slopes of ALiBi are not N, or ALiBi comes with a window or sinks.
    """

    size: int
    heads: int
    kv_heads: int
    head_size: int
    qkv_bias: bool = False
    output_bias: bool = False
    gated: bool = False
    sinks: bool = False
    window: int | None = None
    norm: QueryKeyNorm | None = None
    rope: LayerRope = LayerRope()
    scores: ScoreConfig = ScoreConfig()
    sharing: CacheSharing = CacheSharing()
    values_are_keys: bool = False
    clip: float | None = None
    output_norm: float | None = None
    value_size: int | None = None
    value_scale: float = 1.0
    gate: OutputGate | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ConfigError(f"attention: {self.kv_heads} key/value heads do not divide {self.heads} query heads")
        alibi = self.scores.alibi
        if alibi is not None and len(alibi.slopes) != self.heads:
            raise ConfigError(f"attention: expected {self.heads} ALiBi slopes, one per head; got {len(alibi.slopes)}")
        if alibi is not None and (self.window is not None or self.sinks):
            raise ConfigError("attention: ALiBi is not supported with a window or with sinks")

    @property
    def values(self) -> int:
        """Dims of a head's values."""
        return self.head_size if self.value_size is None else self.value_size

    @property
    def group(self) -> int:
        """G, the query heads of a key/value head."""
        return self.heads // self.kv_heads


@checked_choices
@dataclass(frozen=True, slots=True)
class LatentAttentionConfig:
    """Sizes and options of ``LatentAttention``.

    Attributes:
        size: D.
        heads: N.
        plain_size: dims of a head's queries and keys without RoPE.
        rotated_size: R, dims with RoPE.
        value_size: dims of a head's values.
        rank: size of the compressed keys and values.
        scale: factor of the scores.
        query_rank: size of the compressed queries; None if they are not compressed.
        rope_mode: layout of the rotated pairs.
        bias: whether the projections into the compressed vectors have biases.
        output_bias: whether the output projection has one.
        indexer: choice of the keys that a query sees; all if None.
    """

    size: int
    heads: int
    plain_size: int
    rotated_size: int
    value_size: int
    rank: int
    scale: float
    query_rank: int | None = None
    rope_mode: RopeMode = RopeMode.INTERLEAVED
    bias: bool = False
    output_bias: bool = False
    indexer: IndexerConfig | None = None

    @property
    def query_size(self) -> int:
        """Dims of a head's queries and keys."""
        return self.plain_size + self.rotated_size
