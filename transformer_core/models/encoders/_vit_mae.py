"""ViT-MAE's encoder (He et al. 2021, arXiv:2111.06377): a ViT without a pooler, of all patches of a picture."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.family._model import ModelFamily
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, read_picture, read_stack
from transformer_core.models.encoders._vit import VIT_KEYS, ViTModel

_DEFAULTS: Final = StackDefaults(1e-12, "gelu", 768, 3072, 12, 12, 224, 16)


def _read(fields: ConfigFields) -> VisionConfig:
    """Reads a config.json; ``mask_ratio`` is of training: no patch is hidden, and they stay in order."""
    picture = read_picture(fields, _DEFAULTS)
    if len(set(picture["image"])) > 1 or len(set(picture["patch"])) > 1:
        fields.refuse("image_size", "a square of square patches")
    stack = read_stack(fields, _DEFAULTS, qkv_bias=fields.boolean("qkv_bias", True))
    return VisionConfig(architecture="ViTMAEModel", stack=stack, first_tokens=1, **picture)


VIT_MAE: Final = ModelFamily(
    "ViTMAEModel", "vit_mae", _read, ViTModel, lambda config: VIT_KEYS, "*encoder.layer.{}", ("decoder.*",)
)
