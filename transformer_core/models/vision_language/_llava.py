"""LLaVA 1.5 (arXiv:2310.03744): CLIP's or SigLIP's tower without its last layers, two linear layers, any decoder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of
from transformer_core.layers._feed_forward import Activation
from transformer_core.models.encoders._clip import ClipVisionTower, clip_vision_names, read_clip_vision
from transformer_core.models.encoders._siglip import VisionTower, read_siglip_vision, vision_names
from transformer_core.models.encoders._vision import VisionConfig
from transformer_core.models.families._granite import GRANITE
from transformer_core.models.families._llama import LLAMA
from transformer_core.models.families._mistral import MISTRAL
from transformer_core.models.families._qwen2 import QWEN2
from transformer_core.models.families._qwen3 import QWEN3
from transformer_core.models.vision_language._config import PLAIN, VisionLanguageConfig, read_image_token, seeing
from transformer_core.models.vision_language._family import TEXT_DEFAULTS, below, read_decoder, vision_language_family
from transformer_core.models.vision_language._model import VisionLanguageLM
from transformer_core.models.vision_language._pixtral import Pixtral, PixtralConfig, pixtral_recipes, with_pixtral
from transformer_core.models.vision_language._projectors import MlpProjector

_CLIP: Final = "clip_vision_model"
_SIGLIP: Final = "siglip_vision_model"


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaConfig(VisionLanguageConfig):
    """Configuration of a LLaVA; further attributes as of ``VisionLanguageConfig``.

    Attributes:
        classed: whether the tower has a class token, as CLIP's has.
        dropped: number of the tower's first tokens that are left out.
        projector: activation of the projector.
        projector_bias: whether the projector has biases.
    """

    classed: bool
    dropped: int
    projector: Activation
    projector_bias: bool


class LlavaTower(Module):
    """States of a tower's patches after some of its layers, which no norm follows."""

    def __init__(self, config: LlavaConfig, dtype: DType) -> None:
        self.tower = (ClipVisionTower if config.classed else VisionTower)(config.vision, dtype, normed=False)
        self.dropped = config.dropped

    def forward(self, ctx: ExecutionContext, pixel_values: Tensor) -> Tensor:
        """Maps pixel_values [B, C, height, width] to states [B, T', E]."""
        x = self.tower(ctx, pixel_values)
        return ctx.ops.slice_axis(x, 1, self.dropped, x.shape[1]) if self.dropped else x


class Llava(VisionLanguageLM):
    """LLaVA 1.5."""

    @classmethod
    def parts(cls, config: LlavaConfig, dtype: DType) -> tuple[Module, Module]:
        """Makes the tower and the projector."""
        stack, bias = config.vision.stack, config.projector_bias
        size = stack.hidden * max(1, len(stack.states))
        return LlavaTower(config, dtype), MlpProjector(size, config.hidden, config.projector, bias=bias, dtype=dtype)


def _read(fields: ConfigFields) -> DecoderConfig:
    inner = fields.object("vision_config")
    if inner.values.get("model_type") == "pixtral":
        tied = fields.boolean("tie_word_embeddings", False)
        decoder = read_decoder(fields, (MISTRAL, LLAMA), tied=tied, defaults=TEXT_DEFAULTS)
        fields.choice("vision_feature_select_strategy", ("full",))
        bias, token = fields.boolean("multimodal_projector_bias", True), token_field(fields)
        image_token = read_image_token(fields, token, 32000, decoder)
        known: dict[str, Any] = {"merges": False, "image_token": image_token, "projector_bias": bias}
        return with_pixtral(fields, decoder, "LlavaForConditionalGeneration", **known)
    return read_llava(fields, "LlavaForConditionalGeneration", (LLAMA, MISTRAL, QWEN2, QWEN3), LlavaConfig, PLAIN)


@checked_choices
def read_llava(
    fields: ConfigFields,
    architecture: str,
    families: Sequence[Family],
    kind: type[LlavaConfig],
    form: str,
    *,
    several: bool = False,
    **known: Any,
) -> DecoderConfig:
    """Reads a decoder behind CLIP's or SigLIP's tower and two linear layers.

    Args:
        fields: fields of config.json.
        architecture: architecture of the whole.
        families: families that the decoder may be of.
        kind: class of the configuration.
        form: form of pictures in prompts.
        several: as of ``with_layers``.
        **known: further attributes.
    """
    # transformers ties the head if the whole model or its text_config says so.
    text = fields.object("text_config")
    tied = fields.boolean("tie_word_embeddings", False) or text.boolean("tie_word_embeddings", False)
    decoder = read_decoder(fields, families, tied=tied, defaults=TEXT_DEFAULTS)
    decoder = replace(decoder, logits_scale=1.0)  # as in transformers, which has the head beside the decoder
    inner = fields.object("vision_config")
    classed = inner.choice("model_type", (_CLIP, _SIGLIP), _CLIP) == _CLIP
    vision = (read_clip_vision if classed else read_siglip_vision)(inner, architecture)
    dropped = int(fields.choice("vision_feature_select_strategy", ("default", "full"), "default") == "default")
    return seeing(
        decoder,
        architecture,
        kind,
        vision=with_layers(vision, fields, several=several),
        classed=classed,
        dropped=dropped,
        projector=activation_of(fields, "projector_hidden_act", "gelu"),
        projector_bias=fields.boolean("multimodal_projector_bias", True),
        image_token=read_image_token(fields, token_field(fields), 32000, decoder),
        image_tokens=vision.tokens - dropped,
        image_form=form,
        scaled_images=decoder.architecture == GRANITE.architecture,
        **known,
    )


def token_field(fields: ConfigFields) -> str:
    """Returns the name of the field that has the placeholder token: newer files have another one."""
    return "image_token_id" if fields.has("image_token_id") else "image_token_index"


@checked_choices
def with_layers(vision: VisionConfig, fields: ConfigFields, *, several: bool = False) -> VisionConfig:
    """Returns a tower that runs its layers up to the state ``vision_feature_layer``; state 0 precedes all layers.

    With ``several``, the field may be a list of states, which are put side by side.
    """
    given, layers = fields.values.get("vision_feature_layer", -2), vision.stack.layers
    if several and isinstance(given, list):
        if not given or not all(type(layer) is int and -layers - 1 <= layer <= layers for layer in given):
            fields.refuse("vision_feature_layer", f"numbers of states, {-layers - 1} to {layers}")
        counts = tuple(layer if layer >= 0 else layer + layers + 1 for layer in given)
        if not max(counts):
            fields.refuse("vision_feature_layer", "a state behind a layer: state 0 precedes all layers")
        return replace(vision, stack=replace(vision.stack, order=tuple(range(max(counts))), states=counts))
    layer = given
    if type(layer) is not int or not -layers <= layer <= layers or not layer:
        fields.refuse("vision_feature_layer", f"the number of one state, {-layers} to {layers}, not 0")
    run = layer if layer >= 0 else layer + layers + 1
    return replace(vision, stack=replace(vision.stack, order=tuple(range(run))))


def llava_recipes(config: VisionLanguageConfig) -> RecipeOf:
    """Returns the recipes of the tower and the projector."""
    if not isinstance(config, LlavaConfig):
        return pixtral_recipes(config)
    names = (clip_vision_names if config.classed else vision_names)("")
    tower = {f"vision_model.tower.{ours.removeprefix('vision_model.')}": stored for ours, stored in names.items()}
    places = ("vision_tower.vision_model.", "vision_tower.", "model.vision_tower.vision_model.", "model.vision_tower.")
    projector = {f"connector.{part}": f"multi_modal_projector.{part}" for part in ("linear_1", "linear_2")}
    return first_of(
        below("vision_model.", RenamedModules(tower, above=places)), RenamedModules(projector, above=("model.",))
    )


def _made(config: Any, dtype: DType | str, num_layers: int | None) -> VisionLanguageLM:
    return (Pixtral if isinstance(config, PixtralConfig) else Llava)(config, dtype, num_layers)


LLAVA: Final = vision_language_family(
    "LlavaForConditionalGeneration",
    "llava",
    _read,
    _made,
    llava_recipes,
    ignorable=("*vision_tower.*post_layernorm.*", "*vision_tower.*head.*", "*embeddings.position_ids"),
)
