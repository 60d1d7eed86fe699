"""Pixtral (arXiv:2410.07073), and Mistral Small 3.1 and Ministral 3 with pictures: images of any size, row by row."""

from dataclasses import dataclass, replace
from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, Tensor, WeightSource, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RecipeOf, RenamedModules, Reshaped, first_of
from transformer_core.family._config import DecoderConfig
from transformer_core.family._fields import activation_of
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm
from transformer_core.models.encoders._stack import StackConfig
from transformer_core.models.families._ministral3 import MINISTRAL3
from transformer_core.models.families._mistral import MISTRAL
from transformer_core.models.families._mistral3 import MISTRAL3
from transformer_core.models.vision_language._config import ROWS, read_image_token, seeing
from transformer_core.models.vision_language._family import below, vision_language_family
from transformer_core.models.vision_language._grid_model import AnySizeConfig, AnySizeLM
from transformer_core.models.vision_language._grid_tower import GridTower, GridVisionConfig
from transformer_core.models.vision_language._projectors import MlpProjector

_EPS: Final = 1e-5
_MOST_TOKENS: Final = 1024  # of an image


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class PixtralConfig(AnySizeConfig):
    """Configuration of a decoder behind Pixtral's tower; further attributes as of ``VisionLanguageConfig``.

    Attributes:
        projector: activation of the projector.
        projector_bias: whether the projector has biases.
        merges: whether squares of patches are normed and merged before the projector (Mistral 3).
    """

    projector: Activation
    projector_bias: bool
    merges: bool


class PixtralProjector(Module):
    """Two linear layers, in Mistral 3 behind a norm of patches and a projection of squares."""

    def __init__(self, config: PixtralConfig, dtype: DType) -> None:
        size, side = config.tower.stack.hidden, config.tower.merge
        self.norm = RMSNorm(size, eps=config.norm_eps, dtype=dtype) if config.merges else None
        self.merging = Linear(size * side**2, size, dtype=dtype) if config.merges else None
        self.mlp = MlpProjector(size, config.hidden, config.projector, bias=config.projector_bias, dtype=dtype)
        self.patches = side * side

    def forward(self, ctx: ExecutionContext, states: list[Tensor]) -> list[Tensor]:
        """Maps states [B, N, E] to tokens [B, T, D]."""
        ops, (x,) = ctx.ops, states
        if self.norm is not None and self.merging is not None:
            batch, count, size = x.shape
            squares = ops.reshape(self.norm(ctx, x), (batch, count // self.patches, self.patches, size))
            by_channel = ops.transpose(squares, (0, 1, 3, 2))
            x = self.merging(ctx, ops.reshape(by_channel, (batch, count // self.patches, size * self.patches)))
        return [self.mlp(ctx, x)]


class Pixtral(AnySizeLM):
    """Decoder behind Pixtral's tower."""

    @classmethod
    def parts(cls, config: PixtralConfig, dtype: DType) -> tuple[Module, Module]:
        """Makes the tower and the projector."""
        return GridTower(config.tower, dtype), PixtralProjector(config, dtype)


def read_pixtral_vision(fields: ConfigFields, architecture: str, merge: int, output: int) -> GridVisionConfig:
    """Reads Pixtral's tower.

    Args:
        fields: ``vision_config``.
        architecture: architecture of the whole.
        merge: side of the squares of patches that become one token each.
        output: D.
    """
    hidden, heads = fields.integer("hidden_size", 1024), fields.integer("num_attention_heads", 16)
    if hidden % heads or hidden // heads % 4:
        fields.refuse("num_attention_heads", f"heads of a multiple of 4 dims, of the {hidden} in all")
    if fields.has("head_dim") and fields.integer("head_dim") != hidden // heads:
        fields.refuse("head_dim", f"{hidden // heads}, hidden_size by num_attention_heads")
    rope = fields.object("rope_parameters") if fields.has("rope_parameters") else fields
    if rope is not fields:
        rope.choice("rope_type", ("axial", "default"), "axial")
    patch = fields.integer("patch_size", 16)
    return GridVisionConfig(
        architecture=architecture,
        stack=StackConfig(
            hidden=hidden,
            intermediate=fields.integer("intermediate_size", 4096),
            layers=fields.integer("num_hidden_layers", 24),
            heads=heads,
            norm_eps=_EPS,
            activation=activation_of(fields, default="gelu"),
            qkv_bias=False,
            output_bias=False,
            mlp_bias=False,
            rms_norm=True,
            gated_mlp=True,
        ),
        image=(patch * merge, patch * merge),
        patch=(patch, patch),
        channels=fields.integer("num_channels", 3),
        merge=merge,
        output=output,
        frames=1,
        first_norm=True,
        apart=True,
        rope_base=rope.number("rope_theta", 10000.0, above=1.0),
    )


def with_pixtral(fields: ConfigFields, decoder: DecoderConfig, architecture: str, **known: Any) -> DecoderConfig:
    """Returns the configuration of a decoder behind Pixtral's tower.

    Args:
        fields: fields of config.json.
        decoder: configuration of the decoder alone.
        architecture: architecture of the whole.
        **known: ``merges``, ``image_token`` and ``projector_bias``.
    """
    merge = fields.integer("spatial_merge_size", 2) if known["merges"] else 1
    if fields.values.get("vision_feature_layer", -1) != -1:
        fields.refuse("vision_feature_layer", "-1, the last layer")
    if not known["image_token"]:
        fields.refuse("image_token_index", "above 0: 0 is the id of padding")
    return seeing(
        decoder,
        architecture,
        PixtralConfig,
        vision=read_pixtral_vision(fields.object("vision_config"), architecture, merge, decoder.hidden),
        projector=activation_of(fields, "projector_hidden_act", "gelu"),
        image_tokens=_MOST_TOKENS,
        image_form=ROWS,
        **known,
    )


def _read(fields: ConfigFields) -> DecoderConfig:
    alone = MISTRAL3.read(fields)
    if not fields.values.get("vision_config"):
        return alone
    fields.object("vision_config").choice("model_type", ("pixtral",), "pixtral")
    kind = fields.object("text_config").values.get("model_type", MISTRAL.model_type)
    inner = MINISTRAL3 if kind == MINISTRAL3.model_type else MISTRAL
    decoder = replace(alone, architecture=inner.architecture)
    token = "image_token_id" if fields.has("image_token_id") else "image_token_index"
    return with_pixtral(
        fields,
        decoder,
        MISTRAL3.architecture,
        merges=True,
        image_token=read_image_token(fields, token, 10, decoder),
        projector_bias=fields.boolean("multimodal_projector_bias", False),
    )


_LAYER: Final = "vision_model.layers.{}."
_STORED: Final = "transformer.layers.{}."
_TOWER: Final = {
    "vision_model.projection": "patch_conv.weight",
    "vision_model.first_norm": "ln_pre",
    **{f"{_LAYER}self_attn.{part}_proj": f"{_STORED}attention.{part}_proj" for part in "qkvo"},
    f"{_LAYER}attention_norm": f"{_STORED}attention_norm",
    f"{_LAYER}mlp_norm": f"{_STORED}ffn_norm",
    **{f"{_LAYER}mlp.{part}_proj": f"{_STORED}feed_forward.{part}_proj" for part in ("gate", "up", "down")},
}
_PROJECTOR: Final = {
    "connector.norm": "multi_modal_projector.norm",
    "connector.merging": "multi_modal_projector.patch_merger.merging_layer",
    "connector.mlp.linear_1": "multi_modal_projector.linear_1",
    "connector.mlp.linear_2": "multi_modal_projector.linear_2",
}


def pixtral_recipes(config: Any) -> RecipeOf:
    """Returns the recipes of the tower and the projector."""
    del config
    tower = RenamedModules(_TOWER, above=("vision_tower.", "model.vision_tower."))

    def patches(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name != "vision_model.projection":
            return None
        hidden, channels, _, height, width = shape
        return Reshaped(tower.key(name, source), (hidden, channels, height, width), shape)

    return first_of(patches, below("vision_model.", tower), RenamedModules(_PROJECTOR, above=("model.",)))


MISTRAL3_VISION: Final = vision_language_family(
    MISTRAL3.architecture, MISTRAL3.model_type, _read, Pixtral, pixtral_recipes, alone=MISTRAL3
)
