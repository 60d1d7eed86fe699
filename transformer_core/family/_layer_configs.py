"""Configurations of the kinds of layers that a decoder may have."""

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from lang_core import DType, checked_choices
from transformer_core.layers._cache import StateMixer
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._gated_delta_net import GatedDeltaNet, HeadOrder
from transformer_core.layers._indexer import IndexerConfig
from transformer_core.layers._mamba import Mamba, MambaSizes
from transformer_core.layers._mamba2 import Mamba2, Mamba2Sizes
from transformer_core.layers._moe import ClampedGate
from transformer_core.layers._routing import Routing
from transformer_core.layers._short_convolution import ShortConv


class NormKind(enum.Enum):
    """The norms of a decoder."""

    RMS = "rms"
    RMS_WITHOUT_WEIGHT = "rms_without_weight"
    LAYER = "layer"
    LAYER_WITHOUT_BIAS = "layer_without_bias"
    LAYER_WITHOUT_WEIGHT = "layer_without_weight"


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSizes:
    """Sizes of one layer of a decoder with layers of different sizes.

    Attributes:
        kv_heads: K.
        head_size: H.
        intermediate: F.
        values_are_keys: whether the projection of keys gives the values too.
        heads: N; the model's if None.
        sinks: whether heads have sinks; as the model's if None.
    """

    kv_heads: int
    head_size: int
    intermediate: int
    values_are_keys: bool = False
    heads: int | None = None
    sinks: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AltUpConfig:
    """Alternating updates of a decoder (see ``AltUp``), and related settings (Gemma 3n).

    Attributes:
        copies: A, copies of the residual stream.
        active: index of the copy that layers compute with.
        scaled: whether a layer's result is scaled before embeddings are mixed in.
        laurel_rank: size between the projections of the residual of low rank.
        sparsities: for each layer, share of the feed-forward's gates that are 0.
    """

    copies: int
    active: int
    scaled: bool
    laurel_rank: int
    sparsities: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerLayerConfig:
    """Embeddings of tokens for every layer, beside those of the model (Gemma 3n).

    Attributes:
        vocabulary: number of tokens that have them; others have those of token 0.
        layers: number of layers in the table, also if fewer are run.
        size: P, size of the embedding for one layer.
    """

    vocabulary: int
    layers: int
    size: int


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class OuterConfig:
    """Stages around the layers of a decoder with an encoder's names (BERT).

    Attributes:
        embedding: size of a token's embedding, which is projected to D if it is another.
        token_types: number of types of tokens, of which the first one's embedding is added to all; 0 without.
        first_position: rows of the table of positions before the first.
        transform: activation of the layer before the output projection; without such a layer if None.
        transformed: inputs of the output projection.
        transform_bias: whether that layer has a bias.
    """

    embedding: int
    token_types: int = 0
    first_position: int = 0
    transform: Activation | None = None
    transformed: int = 0
    transform_bias: bool = True


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """Mixtures of experts of a decoder.

    Attributes:
        routing: choice of experts.
        inner: F of one expert.
        layers: for each layer, whether it has experts in place of a dense feed-forward.
        shared: F of the experts that every token goes through, together; 0 without.
        shared_gate: whether these are one expert with a gate.
        sum_scale: factor of the sum of what routed and shared experts give, 1/2 for their average.
        biased: whether the routed experts' projections have biases.
        shared_biased: whether those of the shared experts have.
        scales_inputs: whether an expert's weight is a factor of its input, and not of its result.
        clamped: clamped gate in place of the activation; none if None.
        beside: whether layers have them beside a dense feed-forward, not in its place (Gemma 4).
    """

    routing: Routing
    inner: int
    layers: tuple[bool, ...]
    shared: int = 0
    shared_gate: bool = False
    sum_scale: float = 1.0
    biased: bool = False
    shared_biased: bool = False
    scales_inputs: bool = False
    clamped: ClampedGate | None = None
    beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentConfig:
    """Attention over compressed keys and values (see ``LatentAttention``).

    Attributes:
        rank: size of the compressed keys and values.
        query_rank: size of the compressed queries; None if they are not compressed.
        plain_size: dims of a head without RoPE.
        value_size: dims of a head's values.
        scale: factor of the scores.
        indexer: choice of the keys that a query sees; all if None.
    """

    rank: int
    query_rank: int | None
    plain_size: int
    value_size: int
    scale: float
    indexer: IndexerConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MixerConfig(ABC):
    """Layers that mix tokens by a state.

    Attributes:
        layers: for each layer, whether it does.
        NAME: name of the mixer in its layer.
    """

    NAME: ClassVar[str]
    layers: tuple[bool, ...]

    @abstractmethod
    def made(self, size: int, norm_eps: float, dtype: DType, index: int = 0) -> StateMixer:
        """Makes the mixer of layer ``index``, for a D and an eps of the model's norms."""


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaConfig(MixerConfig):
    """Layers with a Gated DeltaNet in place of attention (see ``GatedDeltaNet``).

    Attributes:
        key_heads: K of these layers.
        value_heads: N of these layers.
        key_size: Hk.
        value_size: Hv.
        taps: width of the convolution.
        grouped: whether one projection has q, k, v and z, and one b and a.
        order: assignment of key heads to value heads.
    """

    NAME: ClassVar[str] = "linear_attn"
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    taps: int
    grouped: bool = True
    order: HeadOrder = HeadOrder.CONSECUTIVE

    def made(self, size: int, norm_eps: float, dtype: DType, index: int = 0) -> StateMixer:
        """Makes the Gated DeltaNet of a layer."""
        heads, sizes = (self.key_heads, self.value_heads), (self.key_size, self.value_size)
        forms: dict[str, Any] = {"taps": self.taps, "grouped": self.grouped, "order": self.order}
        return GatedDeltaNet(size, *heads, *sizes, norm_eps=norm_eps, dtype=dtype, **forms)


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvConfig(MixerConfig):
    """Layers with a short convolution in place of attention (see ``ShortConv``).

    Attributes:
        taps: width of the convolution.
        biased: whether it and its projections have biases.
    """

    NAME: ClassVar[str] = "conv"
    taps: int
    biased: bool

    def made(self, size: int, norm_eps: float, dtype: DType, index: int = 0) -> StateMixer:
        """Makes the short convolution of a layer."""
        return ShortConv(size, self.taps, bias=self.biased, dtype=dtype)


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Config(MixerConfig):
    """Layers with a Mamba-2, in place of attention or beside it (see ``Mamba2``).

    Attributes:
        sizes: sizes and variant.
    """

    NAME: ClassVar[str] = "mamba"
    sizes: Mamba2Sizes

    def made(self, size: int, norm_eps: float, dtype: DType, index: int = 0) -> StateMixer:
        """Makes the Mamba-2 of a layer."""
        return Mamba2(size, self.sizes, norm_eps=norm_eps, dtype=dtype)


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class MambaConfig(MixerConfig):
    """Layers with a Mamba of the first version in place of attention (see ``Mamba``).

    Attributes:
        sizes: sizes and variant.
    """

    NAME: ClassVar[str] = "mamba"
    sizes: MambaSizes

    def made(self, size: int, norm_eps: float, dtype: DType, index: int = 0) -> StateMixer:
        """Makes the Mamba of a layer."""
        del norm_eps
        return Mamba(size, self.sizes, dtype=dtype)
