"""Classifiers of pictures on the vision models of CLIP and SigLIP: the mean of the patches decides."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from lang_core import DType, ExecutionContext, Tensor, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import ModelFamily
from transformer_core.layers._linear import Linear
from transformer_core.models.encoders._clip import ClipVisionTower, clip_vision_names, read_clip_vision
from transformer_core.models.encoders._siglip import VisionTower, read_siglip_vision, vision_names
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._vision import VisionConfig, VisionModel

_CLIP: Final = "CLIPForImageClassification"
_SIGLIP: Final = "SiglipForImageClassification"


class PairForImageClassification(VisionModel):
    """Vision model of a pair with a classifier: ``forward`` gives ``logits`` [B,labels]."""

    def __init__(self, config: VisionConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        clip = self.config.architecture == _CLIP
        # CLIP's states are not normed, and those of its class token are left out.
        self.vision_model = (ClipVisionTower if clip else VisionTower)(self.config, self.dtype, normed=not clip)
        self.classifier = Linear(self.config.stack.hidden, self.config.labels, bias=True, dtype=self.dtype)

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to f32 logits [B, labels]."""
        x = self.vision_model(ctx, pixel_values)
        patches = ctx.ops.slice_axis(x, 1, self.config.first_tokens, x.shape[1])
        return {"logits": ctx.ops.cast(self.classifier(ctx, ctx.ops.mean(patches, (1,))), f32)}


def _read(fields: ConfigFields, architecture: str) -> VisionConfig:
    inner = fields.object("vision_config") if fields.has("vision_config") else ConfigFields({}, fields.where)
    read = read_clip_vision if architecture == _CLIP else read_siglip_vision
    return replace(read(inner, architecture), pooled=0, labels=labels_of(fields))


def _family(architecture: str, model_type: str, names: Mapping[str, str]) -> ModelFamily[Any]:
    keys = RenamedModules(
        {ours: stored for ours, stored in names.items() if ".head." not in ours},
        above=("vision_model.", "vision_model.vision_model."),
    )
    return ModelFamily(
        architecture,
        model_type,
        lambda fields: _read(fields, architecture),
        PairForImageClassification,
        lambda config: keys,
        "*encoder.layers.{}",
        ("*embeddings.position_ids", "*vision_model.post_layernorm.*", "*vision_model.head.*"),
    )


PAIR_CLASSIFIERS: Final = (
    _family(_CLIP, "clip", clip_vision_names("")),
    _family(_SIGLIP, "siglip", vision_names("")),
)
"""Classifiers of pictures of CLIP and SigLIP."""
