"""Configuration and base class of vision models."""

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lang_core import Argument, ConfigError, EntryPoint, ExecutionContext, Tensor, TensorSpec
from transformer_core._config_fields import ConfigFields
from transformer_core._json_files import config_fields
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
        resizes: how positions are interpolated if pictures have another size than in training: ``plain`` or ``smooth``
            (torch's ``antialias``); None if they have the size of config.json.
        stored: height and width of the pictures in training, if these are others.
    """

    image: Size
    patch: Size
    channels: int
    first_tokens: int = 0
    pooled: int = 0
    labels: int = 0
    resizes: str | None = None
    stored: Size | None = None

    @property
    def stored_grid(self) -> Size:
        """Rows and columns of the patches that have stored positions."""
        (height, width), (down, across) = self.stored or self.image, self.patch
        return height // down, width // across

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


_PROCESSORS: Final = (("preprocessor_config.json", None), ("processor_config.json", "image_processor"))
_FETCH: Final = "copy it from the model again"


def as_processed(config: VisionConfig, directory: str | os.PathLike[str]) -> VisionConfig:
    """Returns a configuration with the size that the image processor gives pictures, if positions are interpolated.

    Args:
        config: configuration.
        directory: holds config.json, and perhaps preprocessor_config.json.
    """
    if config.resizes is None:
        return config
    for name, field in _PROCESSORS:
        path = os.path.join(os.fspath(directory), name)
        if not os.path.exists(path):
            continue
        fields = config_fields(path, _FETCH)
        fields = fields if field is None else fields.object(field)
        crops = fields.boolean("do_center_crop", True) and fields.has("crop_size")
        given = fields.values.get("crop_size" if crops else "size")
        sides = [given] * 2 if isinstance(given, int) else [given.get(side) for side in _SIDES] if given else []
        if len(sides) == 2 and all(type(side) is int and side >= 1 for side in sides):
            return _with_image(config, (sides[0], sides[1]), path)
    return config


def _with_image(config: VisionConfig, image: Size, path: str) -> VisionConfig:
    if any(side < patch for side, patch in zip(image, config.patch, strict=True)):
        raise ConfigError(f"{path}: pictures of {list(image)} pixels are smaller than a patch, {list(config.patch)}")
    return config if image == config.image else replace(config, image=image, stored=config.image)


_SIDES: Final = ("height", "width")


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
