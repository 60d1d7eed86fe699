"""Configurations of decoders, read from Hugging Face's config.json by the family of its architecture."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any

from lang_core import ConfigError, DType, Module, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core._names import CONFIG_FILE
from transformer_core.checkpoints import RecipeOf
from transformer_core.family._layer_configs import (
    AltUpConfig,
    ExpertsConfig,
    LatentConfig,
    LayerSizes,
    MixerConfig,
    NormKind,
    OuterConfig,
    PerLayerConfig,
)
from transformer_core.family._registry import AnyFamily, config_values, family_in, family_named
from transformer_core.layers._attention_config import Alibi, OutputGate, QueryGrowth, QueryKeyNormKind
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope_config import RopeConfig, RopeKind
from transformer_core.layers._rope_scaling import RopeScaling


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Configuration of a decoder of any family.

    Attributes:
        architecture: architecture of a registered family.
        vocabulary: V.
        hidden: D.
        intermediate: F.
        layers: L.
        heads: N.
        kv_heads: K.
        head_size: H.
        norm_eps: eps of every norm.
        rope: RoPE of the model.
        windows: for each layer, number of keys that a query sees, itself included; all if None.
        chunked: whether these windows do not slide: positions 0 to ``window - 1`` see one another, then the next ones.
        tied: whether the embedding is also the output projection.
        qkv_bias: whether the projections of queries, keys and values have biases.
        output_bias: whether attention's output projection has one.
        mlp_bias: whether the feed-forward projections have biases.
        qk_norm: whether each head of q and k is normed, before RoPE if nothing else is said.
        v_norm: whether each head of v is normed with them, without a weight.
        gated: whether each head's result is multiplied by a gate.
        sinks: whether each head has a learned score beside those of its keys.
        zero_centred: whether norms add 1 to their weights.
        qk_norm_whole: whether the norms of q and k go over all heads at once.
        qk_norm_after_rope: whether they come after RoPE.
        qk_norm_weighted: whether the norms of q and k have weights.
        qk_norm_kind: kind of the norms of q and k.
        qkv_clip: bound of queries, keys and values on both sides; none if None.
        norm: kind of the norms of the residual stream.
        activation: activation of the feed-forward.
        gated_mlp: whether the feed-forward has a gate beside its two projections.
        parallel: whether attention and feed-forward read the same residual stream, side by side.
        shared_norm: whether these read it behind one norm.
        sandwich: whether there are norms after attention and feed-forward too, if the family leaves that open.
        output_norm: whether attention's result is normed over all heads before its output projection.
        post_norm: whether the residual stream is normed after each addition to it, and not before.
        scale: factor of attention's scores; 1 / sqrt(H) if None.
        softcap: cap of attention's scores; none if None.
        query_growth: growth of queries with their position; none if None.
        alibi: biases of attention's scores by position; none if None.
        embedding_scale: factor of embeddings.
        residual_scale: factor of everything that is added to the residual stream.
        logits_scale: factor of logits.
        logits_softcap: cap of logits, after the scale; none if None.
        local_rope: second RoPE, for some layers.
        rope_kinds: for each layer, its RoPE; the model's in every layer if empty.
        learned_positions: number of positions with learned embeddings, which are added to the tokens'.
        first_sinusoid: number of the first position in sinusoidal embeddings, which are added to the tokens'; none
            are if None.
        paired_sinusoids: whether frequencies are those of pairs of dims (CTRL), and not of halves.
        embedding_norm: whether embeddings are normed before the first layer.
        final_norm: whether the residual stream is normed after the last layer.
        head_bias: whether the output projection has a bias.
        experts: mixtures of experts; None if every layer is dense.
        extra_layers: number of stored layers after the last that are not run (multi-token prediction).
        prediction_heads: number of multi-token prediction heads that checkpoints have, as far as the file says.
        mixer: layers that mix tokens by a state; None if every layer has attention.
        latent: attention over compressed keys and values; None if they are not compressed.
        cache_owners: for each layer, number of the earlier layer that it reads keys and values of, None for its own;
            empty if every layer has its own.
        layer_sizes: for each layer, its own K, H and F; the model's in every layer if empty.
        per_layer: embeddings of tokens for every layer; None without.
        altup: alternating updates of copies of the residual stream; None if there is one.
        value_size: dims of a head's values; H if None.
        value_scale: factor of the values.
        gate: gate of attention's result by a projection of its own; none if None.
        outer: stages of BERT's kind around the layers; None without.
        bos_token_id: token that begins a sequence, if there is one.
        eos_token_ids: tokens that end a sequence.
    """

    architecture: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    norm_eps: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    chunked: bool = False
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    v_norm: bool = False
    gated: bool = False
    sinks: bool = False
    zero_centred: bool = False
    qk_norm_whole: bool = False
    qk_norm_after_rope: bool = False
    qk_norm_weighted: bool = True
    qk_norm_kind: QueryKeyNormKind = QueryKeyNormKind.RMS
    qkv_clip: float | None = None
    norm: NormKind = NormKind.RMS
    activation: Activation = Activation.SILU
    gated_mlp: bool = True
    parallel: bool = False
    shared_norm: bool = False
    sandwich: bool = False
    output_norm: bool = False
    post_norm: bool = False
    scale: float | None = None
    softcap: float | None = None
    query_growth: QueryGrowth | None = None
    alibi: Alibi | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logits_scale: float = 1.0
    logits_softcap: float | None = None
    local_rope: RopeConfig | None = None
    rope_kinds: tuple[RopeKind, ...] = ()
    learned_positions: int = 0
    first_sinusoid: int | None = None
    paired_sinusoids: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    head_bias: bool = False
    experts: ExpertsConfig | None = None
    mixer: MixerConfig | None = None
    latent: LatentConfig | None = None
    extra_layers: int = 0
    prediction_heads: int = 0
    cache_owners: tuple[int | None, ...] = ()
    layer_sizes: tuple[LayerSizes, ...] = ()
    per_layer: PerLayerConfig | None = None
    altup: AltUpConfig | None = None
    value_size: int | None = None
    value_scale: float = 1.0
    gate: OutputGate | None = None
    outer: OuterConfig | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    @checked_choices
    def from_hf(cls, values: Mapping[str, Any], where: str = CONFIG_FILE, *, weights: bool = True) -> "DecoderConfig":
        """Reads a ``config.json``, of transformers 4 or 5.

        Args:
            values: the file's content.
            where: the file's path, for messages.
            weights: whether the checkpoint's weights are wanted: quantised ones are refused.

        Raises:
            ConfigError: the architecture is not supported, or a field is missing, of the wrong type, out of range or
                in contradiction to another one.
        """
        config = ConfigFields(values, where)
        return _decoder_family(family_in(config, weights=weights), f"{where}: ").read(config)

    @property
    def stored_layers(self) -> int:
        """L plus the stored layers that are not run."""
        return self.layers + self.extra_layers

    @property
    def rotates(self) -> bool:
        """True if a layer has RoPE."""
        return not self.rope_kinds or any(kind is not RopeKind.NONE for kind in self.rope_kinds)

    def sizes_of(self, index: int) -> LayerSizes:
        """Returns the sizes of layer ``index``."""
        if self.layer_sizes:
            return self.layer_sizes[index]
        return LayerSizes(kv_heads=self.kv_heads, head_size=self.head_size, intermediate=self.intermediate)

    def first_layers(self, count: int) -> "DecoderConfig":
        """Returns the configuration of a model of the first layers only."""
        return replace(self, layers=count, windows=self.windows[:count])

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return {
            "vocabulary": self.vocabulary,
            "hidden": self.hidden,
            "intermediate": self.intermediate,
            "layers": self.layers,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_size": self.head_size,
            **(
                {"layer_sizes": [_size_facts(self.sizes_of(index)) for index in range(self.layers)]}
                if self.layer_sizes
                else {}
            ),
            "norm": self.norm.value,
            "activation": self.activation.value,
            "gated_mlp": self.gated_mlp,
            "windows": list(self.windows),
            **({"chunked": True} if self.chunked else {}),
            "tied": self.tied,
            "rope": _rope_facts(self.rope) if self.rotates else None,
            "local_rope": None if self.local_rope is None else _rope_facts(self.local_rope),
        }


@dataclass(frozen=True, slots=True)
class Family:
    """Family of decoders, known by its architecture.

    Attributes:
        architecture: its name in ``architectures`` of config.json.
        model_type: its ``model_type``, for files without ``architectures``.
        read: function that reads the configuration of a config.json; raises ConfigError.
        layer: function that makes layer ``index``.
        stored: recipes of parameters that checkpoints do not store as the model has them.
        layer_key: prefix of the keys of a layer's stored tensors, as a glob pattern with ``{}`` for its number.
        ignorable: glob patterns of stored keys that the model does not use.
        make: function that makes the model of a configuration, in a dtype, with a number of first layers, if it is
            more than a decoder.
    """

    architecture: str
    model_type: str
    read: Callable[[ConfigFields], DecoderConfig]
    layer: Callable[[DecoderConfig, int, DType], Module]
    stored: Callable[[DecoderConfig], RecipeOf] | None = None
    layer_key: str = "model.layers.{}"
    ignorable: tuple[str, ...] = ()
    make: Callable[[Any, DType | str, int | None], Any] | None = None


def family_of(config: DecoderConfig) -> Family:
    """Returns the family of a configuration.

    Raises:
        ConfigError: a family of decoders is not registered for its architecture.
    """
    return decoder_family(config.architecture)


def decoder_family(architecture: str) -> Family:
    """Returns the family of decoders of an architecture.

    Raises:
        ConfigError: a family of decoders is not registered for it.
    """
    return _decoder_family(family_named(architecture), "")


@checked_choices
def load_config(directory: str | os.PathLike[str], *, weights: bool = True) -> DecoderConfig:
    """Reads ``config.json`` of a decoder's directory; ``weights`` as for ``DecoderConfig.from_hf``.

    Raises:
        ConfigError: the file is missing, unreadable or not a JSON object, or as ``DecoderConfig.from_hf``.
    """
    config = config_values(directory)
    return DecoderConfig.from_hf(config.values, config.where, weights=weights)


def _decoder_family(family: AnyFamily, where: str) -> Family:
    if not isinstance(family, Family):
        raise ConfigError(f"{where}{family.architecture} is no decoder: take load_model, which reads any model")
    return family


def _size_facts(sizes: LayerSizes) -> dict[str, Any]:
    return {name: value for name, value in asdict(sizes).items() if value is not None}


def _rope_facts(rope: RopeConfig) -> dict[str, Any]:
    return {
        "layout": rope.mode.value,
        "base": rope.base,
        "rotated": rope.rotated,
        "trained_length": rope.trained_length,
        "scaling": {"type": _scaling_name(rope.scaling)} | (asdict(rope.scaling) if is_dataclass(rope.scaling) else {}),
    }


def _scaling_name(scaling: RopeScaling) -> str:
    """Returns the scaling's name as in ``rope_type`` of config.json."""
    name = type(scaling).__name__.removesuffix("Scaling").lower()
    return "default" if name == "no" else name
