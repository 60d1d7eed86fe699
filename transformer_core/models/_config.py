"""What a decoder is made of, read from Hugging Face's config.json by the family that its architecture names."""

import enum
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lang_core import ConfigError, DType, near_names
from transformer_core._cache import CachedLayer
from transformer_core._config_fields import ConfigFields
from transformer_core._feed_forward import Activation
from transformer_core._moe import Routing
from transformer_core._rope_config import RopeConfig, RopeKind
from transformer_core.checkpoints import RecipeOf

CONFIG_FILE: Final = "config.json"


class NormKind(enum.Enum):
    """The norms of a decoder."""

    RMS = "rms"
    LAYER = "layer"
    LAYER_WITHOUT_BIAS = "layer_without_bias"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    """The mixtures of experts of a decoder.

    Attributes:
        routing: how tokens choose.
        inner: F of one expert.
        layers: per layer, whether it has experts in place of a dense feed-forward.
        shared: F of the experts that every token goes through, together; 0 where there are none.
        shared_gate: whether these are one, with a gate.
    """

    routing: Routing
    inner: int
    layers: tuple[bool, ...]
    shared: int = 0
    shared_gate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentConfig:
    """Attention over compressed keys and values (see ``LatentAttention``).

    Attributes:
        rank: of the compressed keys and values.
        query_rank: of the compressed queries; None where they are not compressed.
        plain_size: the dims of a head that are not rotated.
        value_size: of a head's values.
        scale: of the scores.
    """

    rank: int
    query_rank: int | None
    plain_size: int
    value_size: int
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaConfig:
    """The layers with a Gated DeltaNet in place of attention (see ``GatedDeltaNet``).

    Attributes:
        layers: per layer, whether it has one.
        key_heads: K of these layers.
        value_heads: N of these layers.
        key_size: Hk.
        value_size: Hv.
        taps: the width of the convolution.
    """

    layers: tuple[bool, ...]
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    taps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder: what its family's layers are made of.

    Attributes:
        architecture: that of a registered family.
        vocabulary: V.
        hidden: D.
        intermediate: F.
        layers: L.
        heads: N.
        kv_heads: K.
        head_size: H.
        norm_eps: of every RMSNorm.
        rope: of every layer.
        windows: per layer, how many keys a query sees, itself included; None is all.
        tied: whether the embedding is also the output projection.
        qkv_bias: whether the projections of queries, keys and values have biases.
        output_bias: whether attention's output projection has one.
        mlp_bias: whether the feed-forward projections have biases.
        qk_norm: whether each head of q and k is normed before RoPE.
        gated: whether attention's result is multiplied by a gate.
        zero_centred: whether norms add 1 to their weights.
        qk_norm_whole: whether that norm goes over all heads at once.
        norm: the kind of every norm of the residual stream.
        activation: of the feed-forward.
        gated_mlp: whether the feed-forward has a gate beside its two projections.
        parallel: whether attention and feed-forward read the same residual stream, side by side.
        scale: of attention's scores; 1 / sqrt(H) where None.
        softcap: of attention's scores; none where None.
        embedding_scale: what embeddings are multiplied by.
        residual_scale: what is added to the residual stream is multiplied by this.
        logits_scale: what logits are multiplied by.
        logits_softcap: of the logits, after the scale; none where None.
        local_rope: a second RoPE, for some of the layers.
        rope_kinds: per layer, which RoPE it has; the model's in every layer where empty.
        learned_positions: how many positions have embeddings of their own, which are added to the tokens'; 0 for none.
        head_bias: whether the output projection has a bias.
        experts: of the layers with mixtures of experts; None where every layer is dense.
        extra_layers: how many layers checkpoints store after the last one that are not run (multi-token prediction).
        delta: of the layers with a Gated DeltaNet; None where every layer has attention.
        latent: of attention over compressed keys and values; None where attention keeps them whole.
        bos_token_id: the token that begins a sequence, if there is one.
        eos_token_ids: the tokens that end one.
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
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    gated: bool = False
    zero_centred: bool = False
    qk_norm_whole: bool = False
    norm: NormKind = NormKind.RMS
    activation: Activation = Activation.SILU
    gated_mlp: bool = True
    parallel: bool = False
    scale: float | None = None
    softcap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logits_scale: float = 1.0
    logits_softcap: float | None = None
    local_rope: RopeConfig | None = None
    rope_kinds: tuple[RopeKind, ...] = ()
    learned_positions: int = 0
    head_bias: bool = False
    experts: ExpertsConfig | None = None
    delta: DeltaConfig | None = None
    latent: LatentConfig | None = None
    extra_layers: int = 0
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
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
        family = _family_named(config)
        if weights and config.has("quantization_config"):
            config.refuse(
                "quantization_config", "none: only f32, f16 and bf16 weights are read; take the original model"
            )
        return family.read(config)


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of decoder, known by its architecture.

    Attributes:
        architecture: as ``architectures`` in config.json says it.
        model_type: of files without ``architectures``.
        read: makes the configuration of a config.json; raises ConfigError.
        layer: makes layer ``index``.
        stored: how checkpoints of a configuration store parameters that they do not store as the model has them.
        layer_key: what the keys of a layer's stored tensors begin with, as a glob pattern with ``{}`` for its number.
    """

    architecture: str
    model_type: str
    read: Callable[[ConfigFields], DecoderConfig]
    layer: Callable[[DecoderConfig, int, DType], CachedLayer]
    stored: Callable[[DecoderConfig], RecipeOf] | None = None
    layer_key: str = "model.layers.{}"


_FAMILIES: Final[dict[str, Family]] = {}


def register(family: Family) -> None:
    """Makes a family known. A package of one's own may register further ones.

    Raises:
        ConfigError: the architecture or the model type is taken.
    """
    for known in _FAMILIES.values():
        if family.architecture == known.architecture or family.model_type == known.model_type:
            raise ConfigError(
                f"family {family.architecture} ({family.model_type}): {known.architecture} ({known.model_type}) is "
                "registered already: a name stands for one family"
            )
    _FAMILIES[family.architecture] = family


def architectures() -> tuple[str, ...]:
    """The architectures of all registered families."""
    return tuple(_FAMILIES)


def family_of(config: DecoderConfig) -> Family:
    """The family of a configuration.

    Raises:
        ConfigError: none is registered for its architecture.
    """
    found = _FAMILIES.get(config.architecture)
    if found is None:
        raise ConfigError(_unsupported(config.architecture))
    return found


def load_config(directory: str | os.PathLike[str], *, weights: bool = True) -> DecoderConfig:
    """Reads ``config.json`` of a Hugging Face directory; ``weights`` as for ``DecoderConfig.from_hf``.

    Raises:
        ConfigError: the file is missing, unreadable or no JSON object, or as ``DecoderConfig.from_hf``.
    """
    path = os.path.join(os.fspath(directory), CONFIG_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError:
        remedy = "give the directory of a Hugging Face model, with config.json beside its *.safetensors"
        raise ConfigError(f"{path}: no such file: {remedy}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # json.JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ConfigError(f"{path}: is no JSON: {error}: fetch the file again") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a JSON object; found {type(values).__name__}: fetch the file again")
    return DecoderConfig.from_hf(values, path, weights=weights)


def _family_named(config: ConfigFields) -> Family:
    model_type = config.values.get("model_type")
    if not config.has("architectures") and isinstance(model_type, str):
        found = next((family for family in _FAMILIES.values() if family.model_type == model_type), None)
        if found is None:
            kinds = [family.model_type for family in _FAMILIES.values()]
            raise ConfigError(
                f"{config.where}: field 'architectures' is missing, and field 'model_type': expected one of "
                f"{', '.join(kinds)}; found {model_type!r}{near_names(model_type, kinds)}"
            )
        return found
    names = config.values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        config.refuse("architectures", f"a list of one of {', '.join(_FAMILIES)}")
    if names[0] not in _FAMILIES:
        raise ConfigError(f"{config.where}: field 'architectures': {_unsupported(names[0])}")
    return _FAMILIES[names[0]]


def _unsupported(name: str) -> str:
    return f"expected one of {', '.join(_FAMILIES)}; found {name!r}{near_names(name, _FAMILIES)}"
