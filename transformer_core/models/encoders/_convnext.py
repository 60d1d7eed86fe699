"""ConvNeXt (Liu et al. 2022, arXiv:2201.03545): stages of convolutions of each channel, and feed-forwards."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from lang_core import ConfigError, DType, ExecutionContext, Module, Parameter, Repeated, Tensor, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import PatchEmbedding, Size
from transformer_core.layers._feed_forward import FeedForward
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import LayerNorm
from transformer_core.models.encoders._segformer import Conv2d
from transformer_core.models.encoders._stack import StackConfig, labels_of
from transformer_core.models.encoders._swin import stage_of
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, VisionModel, read_picture

_EPS: Final = 1e-6  # of all norms but the last
_TAPS: Final = 7  # of a channel's convolution, down and across
_WIDER: Final = 4  # factor of a feed-forward's inner size


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNextConfig(VisionConfig):
    """Configuration of a ConvNeXt; further attributes as of ``VisionConfig``, ``stack`` is the last stage's.

    Attributes:
        sizes: channels of each stage.
        depths: number of layers of each stage.
        scaled: whether a learned vector scales what a layer adds.
    """

    sizes: tuple[int, ...]
    depths: tuple[int, ...]
    scaled: bool

    @property
    def last_grid(self) -> Size:
        """Rows and columns of the last stage."""
        height, width = self.grid
        ratio = 2 ** (len(self.sizes) - 1)
        return height // ratio, width // ratio

    def first_layers(self, count: int) -> Self:
        """Returns the configuration itself: stages of different sizes are run whole.

        Raises:
            ConfigError: the number of layers is another one.
        """
        if count != self.layers:
            raise ConfigError(f"num_layers: expected {self.layers}, for a ConvNeXt runs all stages; found {count}")
        return self


class ConvNextLayer(Module):
    """Convolution of each channel, a norm and a feed-forward, added to the input."""

    def __init__(self, config: ConvNextConfig, size: int, dtype: DType) -> None:
        self.conv = Conv2d(size, size, _TAPS, dtype, padding=_TAPS // 2, groups=size)
        self.norm = LayerNorm(size, eps=_EPS, dtype=dtype)
        self.mlp = FeedForward(size, _WIDER * size, activation=config.stack.activation, bias=True, dtype=dtype)
        self.scale = Parameter((size,), dtype) if config.scaled else None

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, rows, columns, D] to the same shape."""
        x = ctx.tag(x, "input")
        y = ctx.tag(self.mlp(ctx, self.norm(ctx, self.conv(ctx, x))), "mlp.output")
        y = y if self.scale is None else ctx.ops.mul(y, ctx.parameter(self.scale))
        return ctx.tag(ctx.ops.add(x, y), "output")


class Downsampling(Module):
    """Norm, and squares of four places joined."""

    def __init__(self, inputs: int, outputs: int, dtype: DType) -> None:
        self.norm = LayerNorm(inputs, eps=_EPS, dtype=dtype)
        self.conv = PatchEmbedding(inputs, outputs, (2, 2), dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [B, rows, columns, in] to [B, rows / 2, columns / 2, out]; what is odd at the end is left out."""
        batch, rows, columns, _ = x.shape
        y = self.conv(ctx, ctx.ops.transpose(self.norm(ctx, x), (0, 3, 1, 2)))
        return ctx.ops.reshape(y, (batch, rows // 2, columns // 2, y.shape[2]))


class ConvNextModel(VisionModel):
    """ConvNeXt.

    ``forward(pixel_values [B,C,height,width])`` gives ``logits`` [B,labels] of a classifier, or ``last_hidden_state``
    [B,D,rows,columns] and ``pooler_output`` [B,D], their normed mean.
    """

    def __init__(self, config: ConvNextConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        own = config
        self._convnext: Final = own
        sizes = own.sizes
        self.patches = PatchEmbedding(own.channels, sizes[0], own.patch, dtype=self.dtype)
        self.patch_norm = LayerNorm(sizes[0], eps=_EPS, dtype=self.dtype)
        self.layers = Repeated(
            own.layers, lambda index: ConvNextLayer(own, sizes[stage_of(own.depths, index)[0]], self.dtype)
        )
        self.downs = Repeated(len(sizes) - 1, lambda index: Downsampling(sizes[index], sizes[index + 1], self.dtype))
        self.norm = LayerNorm(sizes[-1], eps=own.stack.norm_eps, dtype=self.dtype)
        self.classifier = Linear(sizes[-1], own.labels, bias=True, dtype=self.dtype) if own.labels else None

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to f32 logits [B, labels], or states and [B, D]."""
        ops, config, downs = ctx.ops, self._convnext, list(self.downs)
        x = self.patch_norm(ctx, self.patches(ctx, ops.cast(pixel_values, self.dtype)))
        x = ops.reshape(x, (x.shape[0], *config.grid, x.shape[2]))
        for index, layer in enumerate(self.layers):
            stage, place = stage_of(config.depths, index)
            x = downs[stage - 1](ctx, x) if stage and not place else x
            with ctx.block(layer.path):
                x = layer(ctx, x)
        pooled = self.norm(ctx, ops.mean(x, (1, 2)))
        if self.classifier is not None:
            return {"logits": ops.cast(self.classifier(ctx, pooled), f32)}
        states = ops.cast(ops.transpose(x, (0, 3, 1, 2)), f32)
        return {"last_hidden_state": states, "pooler_output": ops.cast(pooled, f32)}


_DEFAULTS: Final = StackDefaults(1e-12, "gelu", image=224, patch=4)
_MOST_STAGES, _MOST_LAYERS, _MOST_CHANNELS = 8, 256, 1 << 16


def _read(fields: ConfigFields, architecture: str) -> ConvNextConfig:
    count = fields.integer("num_stages", 4)
    if count > _MOST_STAGES:
        fields.refuse("num_stages", f"at most {_MOST_STAGES}")
    sizes = _numbers(fields, "hidden_sizes", [96, 192, 384, 768], count, _MOST_CHANNELS)
    depths = _numbers(fields, "depths", [3, 3, 9, 3], count, _MOST_LAYERS)
    classifies = architecture == "ConvNextForImageClassification"
    config = ConvNextConfig(
        architecture=architecture,
        stack=StackConfig(
            hidden=sizes[-1],
            intermediate=_WIDER * sizes[-1],
            layers=sum(depths),
            heads=1,
            norm_eps=fields.number("layer_norm_eps", 1e-12),
            activation=activation_of(fields, default="gelu"),
        ),
        sizes=tuple(sizes),
        depths=tuple(depths),
        scaled=fields.number("layer_scale_init_value", 1e-6, above=-1.0) > 0,
        pooled=0 if classifies else sizes[-1],
        labels=labels_of(fields) if classifies else 0,
        **read_picture(fields, _DEFAULTS),
    )
    if min(config.last_grid) < 1:
        fields.refuse("image_size", f"pictures of {2 ** (count - 1)} patches down and across at least")
    return config


def _numbers(fields: ConfigFields, name: str, default: list[int], count: int, most: int) -> list[int]:
    values = fields.values.get(name) or default
    whole = isinstance(values, list) and len(values) == count
    if not whole or not all(type(value) is int and 1 <= value <= most for value in values):
        fields.refuse(name, f"a list of {count} integers of 1 to {most}, one of each stage (num_stages)")
    return values


def _keys(config: ConvNextConfig) -> RenamedModules:
    names = {
        "patches": "embeddings.patch_embeddings",
        "patch_norm": "embeddings.layernorm",
        "norm": "layernorm",
    }
    for index in range(len(config.sizes) - 1):
        stored = f"encoder.stages.{index + 1}.downsampling_layer"
        for place, part in enumerate(("norm", "conv")):
            names |= {f"downs.{index}.{part}.{kind}": f"{stored}.{place}.{kind}" for kind in ("weight", "bias")}
    parts = {"conv": "dwconv", "norm": "layernorm", "mlp.up_proj": "pwconv1", "mlp.down_proj": "pwconv2"}
    for index in range(config.layers):
        stage, place = stage_of(config.depths, index)
        block = f"encoder.stages.{stage}.layers.{place}"
        names[f"layers.{index}.scale"] = f"{block}.layer_scale_parameter"
        for ours, stored in parts.items():
            names |= {f"layers.{index}.{ours}.{kind}": f"{block}.{stored}.{kind}" for kind in ("weight", "bias")}
    return RenamedModules(names, above=("convnext.",))


def _family(architecture: str) -> ModelFamily[Any]:
    return ModelFamily(
        architecture,
        "convnext",
        lambda fields: _read(fields, architecture),
        ConvNextModel,
        _keys,
        "*encoder.stages.{}",
        ("classifier.*",),
    )


CONVNEXT: Final = (_family("ConvNextModel"), _family("ConvNextForImageClassification"))
