"""Configuration and base class of vision models."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lang_core import Argument, ConfigError, EntryPoint, ExecutionContext, Tensor, TensorSpec
from transformer_core._config_fields import ConfigFields
from transformer_core.family._fields import activation_of
from transformer_core.family._model import Model, check_size
from transformer_core.flow import CompileProfile
from transformer_core.layers._embedding import Size, patch_count
from transformer_core.models.encoders._stack import EncoderConfig, StackConfig, encoder_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig(EncoderConfig):
    """Configuration of a vision model; further attributes as of ``EncoderConfig``.

    Attributes:
        image: height and width, in pixels.
        patch: height and width of a patch.
        channels: channels of the image.
        first_tokens: number of tokens before those of the patches.
        pooled: size of ``pooler_output``; 0 without a pooler.
        labels: number of classes; 0 without a classifier.
    """

    image: Size
    patch: Size
    channels: int
    first_tokens: int = 0
    pooled: int = 0
    labels: int = 0

    @property
    def grid(self) -> Size:
        """Patches of the height and of the width."""
        (height, width), (down, across) = self.image, self.patch
        return height // down, width // across

    @property
    def tokens(self) -> int:
        """T."""
        return self.first_tokens + patch_count(self.image, self.patch)

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        seen = {"image": list(self.image), "patch": list(self.patch), "channels": self.channels}
        return {**self.stack.facts(), **seen, "labels": self.labels}


class VisionModel(Model[VisionConfig]):
    """Model with ``forward(pixel_values f32 [B,C,height,width])``, which gives ``results`` in f32."""

    @abstractmethod
    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Computes the results of ``forward`` of pixel_values f32 [B, C, height, width], each f32 [B, ..]."""

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is the number of an image's tokens.

        Raises:
            ConfigError: another T was asked for.
        """
        check_size("batch", batch)
        config = self.config
        for name, size in (("sequence", sequence), ("max_sequence", max_sequence)):
            if size is not None and size != config.tokens:
                height, width = config.image
                raise ConfigError(
                    f"{name}: pictures of {height} x {width} pixels have {config.tokens} tokens; found {size}: leave "
                    "it out"
                )
        return encoder_profile(batch, config.tokens, self.dtype)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds ``forward``."""
        spec = TensorSpec((profile.batch, self.config.channels, *self.config.image), "f32")
        return EntryPoint(profile.name, self.results, (Argument("pixel_values", spec),))


@dataclass(frozen=True, slots=True)
class StackDefaults:
    """transformers' defaults of absent fields; None for fields that every config.json has.

    Attributes:
        norm_eps: ``layer_norm_eps``.
        activation: ``hidden_act``.
        hidden: ``hidden_size``.
        intermediate: ``intermediate_size``.
        layers: ``num_hidden_layers``.
        heads: ``num_attention_heads``.
        image: ``image_size``.
        patch: ``patch_size``.
    """

    norm_eps: float
    activation: str
    hidden: int | None = None
    intermediate: int | None = None
    layers: int | None = None
    heads: int | None = None
    image: int | None = None
    patch: int | None = None


def read_stack(fields: ConfigFields, default: StackDefaults, *, qkv_bias: bool = True) -> StackConfig:
    """Reads the layers of a model with norms before attention and feed-forward."""
    hidden = fields.integer("hidden_size", default.hidden)
    heads = fields.integer("num_attention_heads", default.heads)
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads})")
    return StackConfig(
        hidden=hidden,
        intermediate=fields.integer("intermediate_size", default.intermediate),
        layers=fields.integer("num_hidden_layers", default.layers),
        heads=heads,
        norm_eps=fields.number("layer_norm_eps", default.norm_eps),
        activation=activation_of(fields, default=default.activation),
        qkv_bias=qkv_bias,
    )


def read_picture(fields: ConfigFields, default: StackDefaults) -> dict[str, Any]:
    """Reads ``image``, ``patch`` and ``channels`` of a ``VisionConfig``."""
    image = _height_and_width(fields, "image_size", default.image)
    patch = _height_and_width(fields, "patch_size", default.patch)
    if any(side > whole for side, whole in zip(patch, image, strict=True)):
        fields.refuse("patch_size", f"at most image_size ({list(image)})")
    return {"image": image, "patch": patch, "channels": fields.integer("num_channels", 3)}


def _height_and_width(fields: ConfigFields, name: str, default: int | None) -> Size:
    value = fields.values.get(name)
    if not isinstance(value, list):
        side = fields.integer(name, default)
        return side, side
    if len(value) != 2 or any(not isinstance(side, int) or isinstance(side, bool) or side < 1 for side in value):
        fields.refuse(name, "an integer of at least 1, or height and width as a list of two")
    return value[0], value[1]
