"""YOLOS (Fang et al. 2021, arXiv:2106.00666): a ViT with tokens that find objects: a class and a box of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from lang_core import ConfigError, DType, ExecutionContext, Module, Parameter, Repeated, Tensor, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._embedding import PatchEmbedding, patch_count
from transformer_core.layers._linear import Linear
from transformer_core.models.encoders._stack import EncoderLayer, labels_of, layer_norm
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, VisionModel, read_picture, read_stack


@dataclass(frozen=True, slots=True, kw_only=True)
class YolosConfig(VisionConfig):
    """Configuration of a YOLOS; further attributes as of ``VisionConfig``.

    Attributes:
        objects: number of tokens that find objects, behind the patches.
        repeats: whether positions are added again before each layer but the first.
    """

    objects: int
    repeats: bool

    @property
    def tokens(self) -> int:
        """T."""
        return self.first_tokens + patch_count(self.image, self.patch) + self.objects

    def first_layers(self, count: int) -> Self:
        """Returns the configuration of the first layers.

        Raises:
            ConfigError: layers have positions of their own, which checkpoints store as one tensor.
        """
        if self.repeats and count != self.layers:
            raise ConfigError(
                f"num_layers: expected {self.layers}, for the positions of all layers are one tensor; found {count}"
            )
        return cast(Self, VisionConfig.first_layers(self, count))


class BoxHead(Module):
    """Three matrices with a relu between."""

    def __init__(self, hidden: int, outputs: int, dtype: DType) -> None:
        self.first = Linear(hidden, hidden, bias=True, dtype=dtype)
        self.second = Linear(hidden, hidden, bias=True, dtype=dtype)
        self.third = Linear(hidden, outputs, bias=True, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to [.., outputs]."""
        x = ctx.ops.relu(self.first(ctx, x))
        return self.third(ctx, ctx.ops.relu(self.second(ctx, x)))


class YolosModel(VisionModel):
    """YOLOS.

    ``forward(pixel_values [B,C,height,width])`` gives, for each of N objects, ``logits`` [B,N,labels+1], the last of no
    object, and ``pred_boxes`` [B,N,4]: centre, width and height in parts of the picture.
    """

    def __init__(self, config: YolosConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        own, hidden = config, self.config.stack.hidden
        self._yolos: Final = own
        self.class_token = Parameter((1, 1, hidden), self.dtype)
        self.object_tokens = Parameter((1, own.objects, hidden), self.dtype)
        self.patches = PatchEmbedding(own.channels, hidden, own.patch, dtype=self.dtype)
        self.positions = Parameter((1, own.tokens, hidden), self.dtype)
        stack = self.config.stack
        again = own.repeats and stack.layers > 1
        self.later_positions = Parameter((stack.layers - 1, 1, own.tokens, hidden), self.dtype) if again else None
        self.layers = Repeated(stack.layers, lambda index: EncoderLayer(stack, index, self.dtype))
        self.norm = layer_norm(stack, self.dtype)
        self.classes = BoxHead(hidden, own.labels + 1, self.dtype)
        self.boxes = BoxHead(hidden, 4, self.dtype)

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to f32 logits [B, N, labels + 1] and boxes [B, N, 4]."""
        ops, count = ctx.ops, self._yolos.objects
        patches = self.patches(ctx, ops.cast(pixel_values, self.dtype))
        batch, _, hidden = patches.shape
        first = ops.broadcast(ctx.parameter(self.class_token), (batch, 1, hidden))
        last = ops.broadcast(ctx.parameter(self.object_tokens), (batch, count, hidden))
        x = ops.add(ops.concat([first, patches, last], 1), ctx.parameter(self.positions))
        for index, layer in enumerate(self.layers):
            if index and self.later_positions is not None:
                later = ops.slice_axis(ctx.parameter(self.later_positions), 0, index - 1, index)
                x = ops.add(x, ops.reshape(later, later.shape[1:]))
            with ctx.block(layer.path):
                x = layer(ctx, x)
        x = self.norm(ctx, ops.slice_axis(x, 1, x.shape[1] - count, x.shape[1]))
        boxes = ops.logistic(ops.cast(self.boxes(ctx, x), f32))
        return {"logits": ops.cast(self.classes(ctx, x), f32), "pred_boxes": boxes}


_DEFAULTS: Final = StackDefaults(1e-12, "gelu", 768, 3072, 12, 12, patch=16)


def _read(fields: ConfigFields) -> YolosConfig:
    stack = read_stack(fields, _DEFAULTS, qkv_bias=fields.boolean("qkv_bias", True))
    if not fields.has("image_size"):
        fields = ConfigFields({**fields.values, "image_size": [512, 864]}, fields.where)
    picture = read_picture(fields, _DEFAULTS)
    if len(set(picture["patch"])) > 1 or any(side % picture["patch"][0] for side in picture["image"]):
        fields.refuse("patch_size", f"a square that divides image_size ({list(picture['image'])})")
    return YolosConfig(
        architecture="YolosForObjectDetection",
        stack=stack,
        first_tokens=1,
        labels=labels_of(fields),
        objects=fields.integer("num_detection_tokens", 100),
        repeats=fields.boolean("use_mid_position_embeddings", True),
        **picture,
    )


_LAYER, _STORED = "layers.{}.", "vit.encoder.layer.{}."
_PLACES: Final = {"first": 0, "second": 1, "third": 2}
_KEYS: Final = RenamedModules(
    {
        "class_token": "vit.embeddings.cls_token",
        "object_tokens": "vit.embeddings.detection_tokens",
        "positions": "vit.embeddings.position_embeddings",
        "later_positions": "vit.encoder.mid_position_embeddings",
        "patches": "vit.embeddings.patch_embeddings.projection",
        **{f"{_LAYER}self_attn.{n[0]}_proj": f"{_STORED}attention.attention.{n}" for n in ("query", "key", "value")},
        f"{_LAYER}self_attn.o_proj": f"{_STORED}attention.output.dense",
        f"{_LAYER}attention_norm": f"{_STORED}layernorm_before",
        f"{_LAYER}mlp_norm": f"{_STORED}layernorm_after",
        f"{_LAYER}mlp.up_proj": f"{_STORED}intermediate.dense",
        f"{_LAYER}mlp.down_proj": f"{_STORED}output.dense",
        "norm": "vit.layernorm",
        **{f"classes.{part}": f"class_labels_classifier.layers.{place}" for part, place in _PLACES.items()},
        **{f"boxes.{part}": f"bbox_predictor.layers.{place}" for part, place in _PLACES.items()},
    }
)
YOLOS: Final[ModelFamily[Any]] = ModelFamily(
    "YolosForObjectDetection", "yolos", _read, YolosModel, lambda config: _KEYS, "*encoder.layer.{}", ("vit.pooler.*",)
)
