"""LLaVA-NeXT (1.6), Granite Vision among them: tiles of one of several canvases, in rows that end with a token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from lang_core import DType, ExecutionContext, Module, Parameter, Tensor, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.models.families._granite import GRANITE
from transformer_core.models.families._llama import LLAMA
from transformer_core.models.families._mistral import MISTRAL
from transformer_core.models.families._qwen2 import QWEN2
from transformer_core.models.vision_language._config import ANYRES
from transformer_core.models.vision_language._family import below, vision_language_family
from transformer_core.models.vision_language._llava import LlavaConfig, LlavaTower, llava_recipes, read_llava
from transformer_core.models.vision_language._model import VisionLanguageLM
from transformer_core.models.vision_language._projectors import MlpProjector

_ARCHITECTURE: Final = "LlavaNextForConditionalGeneration"
_CANVASES: Final = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class LlavaNextConfig(LlavaConfig):
    """Configuration of a LLaVA-NeXT; further attributes as of ``LlavaConfig``.

    Attributes:
        canvases: sizes of whole pictures, in pixels, each of whole tiles.
    """

    canvases: tuple[tuple[int, int], ...]

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return {**LlavaConfig.facts(self), "image_canvases": [list(canvas) for canvas in self.canvases]}


class RowsProjector(Module):
    """Two linear layers, and the token that ends each row of a picture, behind the tokens of a tile."""

    def __init__(self, config: LlavaNextConfig, dtype: DType) -> None:
        stack = config.vision.stack
        size = stack.hidden * max(1, len(stack.states))
        self.mlp = MlpProjector(size, config.hidden, config.projector, bias=config.projector_bias, dtype=dtype)
        self.newline = Parameter((config.hidden,), dtype)

    def forward(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps states x [B, T, E] to [B, T + 1, D]."""
        tokens = self.mlp(ctx, x)
        newline = ctx.ops.broadcast(ctx.parameter(self.newline), (x.shape[0], 1, tokens.shape[2]))
        return ctx.ops.concat([tokens, newline], 1)


class LlavaNext(VisionLanguageLM):
    """LLaVA-NeXT."""

    @classmethod
    def parts(cls, config: LlavaNextConfig, dtype: DType) -> tuple[Module, Module]:
        """Makes the tower and the projector."""
        return LlavaTower(config, dtype), RowsProjector(config, dtype)


def _read(fields: ConfigFields) -> DecoderConfig:
    return read_llava_next(fields, _ARCHITECTURE, (LLAMA, MISTRAL, QWEN2, GRANITE), LlavaNextConfig, ANYRES)


def read_llava_next(
    fields: ConfigFields,
    architecture: str,
    families: Sequence[Family],
    kind: type[LlavaNextConfig],
    form: str,
    **known: Any,
) -> DecoderConfig:
    """Reads a decoder that sees pictures as tiles of canvases. Arguments are as of ``read_llava``."""
    canvases = read_canvases(fields)
    config = read_llava(fields, architecture, families, kind, form, several=True, canvases=canvases, **known)
    assert isinstance(config, LlavaNextConfig)
    (height, width), (rows, columns) = config.vision.image, config.vision.grid
    if height != width or rows * columns != config.image_tokens:
        fields.refuse(
            "vision_feature_select_strategy",
            "the patches of a square picture alone: default with a class token (CLIP), full without (SigLIP)",
        )
    if any(side % height for canvas in config.canvases for side in canvas):
        fields.refuse("image_grid_pinpoints", f"multiples of the tower's image_size ({height})")
    return config


def read_canvases(fields: ConfigFields) -> tuple[tuple[int, int], ...]:
    """Reads ``image_grid_pinpoints``."""
    given = fields.values.get("image_grid_pinpoints")
    given = _CANVASES if given is None else given
    if not isinstance(given, list | tuple) or not given or not all(map(_is_size, given)):
        fields.refuse("image_grid_pinpoints", "a list of heights and widths")
    return tuple((height, width) for height, width in given)


def _is_size(value: Any) -> bool:
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and all(type(side) is int and side > 0 for side in value)


def llava_next_recipes(config: LlavaNextConfig) -> RecipeOf:
    """Returns the recipes of the tower, the projector and the end of rows."""
    names = {f"connector.mlp.{part}": f"multi_modal_projector.{part}" for part in ("linear_1", "linear_2")}
    own = RenamedModules({**names, "connector.newline": "image_newline"}, above=("model.",))
    return first_of(below("connector.", own), llava_recipes(config))


LLAVA_NEXT: Final = vision_language_family(
    _ARCHITECTURE,
    "llava_next",
    _read,
    LlavaNext,
    llava_next_recipes,
    ignorable=("*vision_tower.*post_layernorm.*", "*vision_tower.*head.*", "*embeddings.position_ids"),
)
