"""InternVL 2.5, 3 and 3.5 in transformers' form (arXiv:2504.10479): a ViT with layer scales, squares of patches."""

from dataclasses import dataclass, replace
from typing import Final

from lang_core import DType, ExecutionContext, Module, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig
from transformer_core.family._fields import activation_of
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._norm import LayerNorm
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, read_picture, read_stack
from transformer_core.models.encoders._vit_tower import VitTower
from transformer_core.models.families._llama import LLAMA
from transformer_core.models.families._qwen2 import QWEN2
from transformer_core.models.families._qwen3 import QWEN3
from transformer_core.models.families._qwen3_moe import QWEN3_MOE
from transformer_core.models.vision_language._config import ENCLOSED, VisionLanguageConfig, read_image_token, seeing
from transformer_core.models.vision_language._family import TEXT_DEFAULTS, below, read_decoder, vision_language_family
from transformer_core.models.vision_language._model import VisionLanguageLM
from transformer_core.models.vision_language._projectors import MlpProjector, squares_of

_ARCHITECTURE: Final = "InternVLForConditionalGeneration"
_VISION: Final = StackDefaults(1e-6, "gelu", 1024, 4096, 24, 16, 448, 14)
_PROJECTOR_EPS: Final = 1e-5  # torch's, whatever the configuration says


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class InternVLConfig(VisionLanguageConfig):
    """Configuration of an InternVL; further attributes as of ``VisionLanguageConfig``.

    Attributes:
        shuffle: side of the squares of patches that become one token each.
        positions: whether the tower has learned positions.
        normed: whether a norm follows the tower's layers.
        projector: activation of the projector.
    """

    shuffle: int
    positions: bool
    normed: bool
    projector: Activation


class SquaresProjector(Module):
    """Squares of patches, normed, through two linear layers; the class token is left out."""

    def __init__(self, config: InternVLConfig, dtype: DType) -> None:
        size = config.vision.stack.hidden * config.shuffle**2
        self.grid, self.side = config.vision.grid, config.shuffle
        self.layer_norm = LayerNorm(size, eps=_PROJECTOR_EPS, dtype=dtype)
        self.mlp = MlpProjector(size, config.hidden, config.projector, dtype=dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps states x [B, 1 + height * width, E] to [B, T, D]."""
        patches = ctx.ops.slice_axis(x, 1, 1, x.shape[1])
        return self.mlp(ctx, self.layer_norm(ctx, squares_of(ctx, patches, self.grid, self.side)))


class InternVL(VisionLanguageLM):
    """InternVL in transformers' form."""

    @classmethod
    def parts(cls, config: InternVLConfig, dtype: DType) -> tuple[Module, Module]:
        """Makes the tower and the projector."""
        tower = VitTower(config.vision, dtype, positions=config.positions, normed=config.normed)
        return tower, SquaresProjector(config, dtype)


def _read(fields: ConfigFields) -> DecoderConfig:
    families = (QWEN2, QWEN3, QWEN3_MOE, LLAMA)
    decoder = read_decoder(fields, families, tied=fields.boolean("tie_word_embeddings", True), defaults=TEXT_DEFAULTS)
    inner = fields.object("vision_config") if fields.has("vision_config") else ConfigFields({}, fields.where)
    vision, shuffle = _read_vision(inner), _shuffle(fields)
    fields.choice("vision_feature_select_strategy", ("default",), "default")
    if fields.values.get("vision_feature_layer", -1) != -1:
        fields.refuse("vision_feature_layer", "-1, the last layer")
    height, width = vision.grid
    if height != width or height % shuffle:
        inner.refuse("image_size", f"a square with a multiple of {shuffle} patches a side")
    return seeing(
        decoder,
        _ARCHITECTURE,
        InternVLConfig,
        vision=vision,
        shuffle=shuffle,
        positions=inner.boolean("use_absolute_position_embeddings", True),
        normed=not inner.boolean("use_mean_pooling", True),
        projector=activation_of(fields, "projector_hidden_act", "gelu"),
        image_token=read_image_token(fields, "image_token_id", 151667, decoder),
        image_tokens=height * width // shuffle**2,
        image_form=ENCLOSED,
    )


def _read_vision(fields: ConfigFields) -> VisionConfig:
    fields.choice("model_type", ("internvl_vision",), "internvl_vision")
    stack = replace(
        read_stack(fields, _VISION, qkv_bias=fields.boolean("attention_bias", False)),
        layer_scale=True,
        qk_norm=fields.boolean("use_qk_norm", False),
        rms_norm=fields.choice("norm_type", ("layer_norm", "rms_norm"), "layer_norm") == "rms_norm",
    )
    return VisionConfig(architecture=_ARCHITECTURE, stack=stack, first_tokens=1, **read_picture(fields, _VISION))


def _shuffle(fields: ConfigFields) -> int:
    ratio = fields.number("downsample_ratio", 0.5)
    if not 0 < ratio <= 1 or (1 / ratio) % 1 or 1 % ratio:  # transformers computes with the ratio: 1 / 3 leaves a rest
        fields.refuse("downsample_ratio", "a power of 1 / 2")
    return int(1 / ratio)


_LAYER: Final = "vision_model.encoder.layers.{}."
_STORED: Final = "encoder.layer.{}."
_TOWER: Final = {
    "vision_model.class_token": "embeddings.cls_token",
    "vision_model.positions": "embeddings.position_embeddings",
    "vision_model.patches": "embeddings.patch_embeddings.projection",
    "vision_model.norm": "layernorm",
    **{f"{_LAYER}self_attn.{part}_proj": f"{_STORED}attention.{part}_proj" for part in "qkv"},
    **{f"{_LAYER}self_attn.{part}_norm": f"{_STORED}attention.{part}_norm" for part in "qk"},
    f"{_LAYER}self_attn.o_proj": f"{_STORED}attention.projection_layer",
    f"{_LAYER}attention_norm": f"{_STORED}layernorm_before",
    f"{_LAYER}mlp.up_proj": f"{_STORED}mlp.fc1",
    f"{_LAYER}mlp.down_proj": f"{_STORED}mlp.fc2",
    f"{_LAYER}mlp_norm": f"{_STORED}layernorm_after",
    f"{_LAYER}attention_scale": f"{_STORED}lambda_1",
    f"{_LAYER}mlp_scale": f"{_STORED}lambda_2",
}
_PROJECTOR: Final = {
    "connector.layer_norm": "multi_modal_projector.layer_norm",
    "connector.mlp.linear_1": "multi_modal_projector.linear_1",
    "connector.mlp.linear_2": "multi_modal_projector.linear_2",
}


def _recipes(config: InternVLConfig) -> RecipeOf:
    tower = RenamedModules(_TOWER, above=("vision_tower.", "model.vision_tower."))
    return first_of(below("vision_model.", tower), RenamedModules(_PROJECTOR, above=("model.",)))


INTERNVL: Final = vision_language_family(
    _ARCHITECTURE, "internvl", _read, InternVL, _recipes, ignorable=("*vision_tower.embeddings.mask_token",)
)
