"""SmolVLM (arXiv:2504.05299) and Idefics 3 (arXiv:2408.12637): SigLIP's tower, squares of patches, a Llama."""

from typing import Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.models.encoders._siglip import vision_names
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, read_picture, read_stack
from transformer_core.models.families._llama import LLAMA
from transformer_core.models.vision_language._config import seeing
from transformer_core.models.vision_language._model import VisionLanguageLM

_VISION: Final = StackDefaults(1e-6, "gelu_pytorch_tanh", 1152, 3072, 12, 16, 224, 32)
_IMAGE_TOKEN: Final = 128257
_LARGEST_GRID: Final = 64
# transformers finds the positions of patches by fractions in f32: in grids of these sides some patches share one.
_UNEVEN: Final = frozenset((19, 25, 29, 31, 38, 40, 41, 43, 47, 49, 50, 54, 55, 58, 59, 61, 62))


def _read(fields: ConfigFields, architecture: str) -> DecoderConfig:
    text = fields.object("text_config")
    text.choice("model_type", (LLAMA.model_type,), LLAMA.model_type)
    # The whole model's field says whether the head is the embedding.
    values = {**text.values, "tie_word_embeddings": fields.boolean("tie_word_embeddings", False)}
    decoder = LLAMA.read(ConfigFields(values, text.where))
    vision = _read_vision(fields.object("vision_config"), architecture)
    shuffle, (grid, _) = fields.integer("scale_factor", 2), vision.grid
    if grid % shuffle:
        fields.refuse("scale_factor", f"a divisor of the {grid} patches of a side")
    image_token = fields.integer("image_token_id", _IMAGE_TOKEN, minimum=0)
    if image_token >= decoder.vocabulary:
        fields.refuse("image_token_id", f"below vocab_size ({decoder.vocabulary})")
    return seeing(decoder, architecture, vision=vision, shuffle=shuffle, image_token=image_token)


def _read_vision(fields: ConfigFields, architecture: str) -> VisionConfig:
    stack = read_stack(fields, _VISION)
    vision = VisionConfig(architecture=architecture, stack=stack, **read_picture(fields, _VISION))
    height, width = vision.grid
    if height != width or vision.patch[0] != vision.patch[1]:
        fields.refuse("image_size", "a square of square patches")
    if height > _LARGEST_GRID or height in _UNEVEN:
        uneven = ", ".join(map(str, sorted(_UNEVEN)))
        fields.refuse("patch_size", f"one with which a side has at most {_LARGEST_GRID} patches, and not {uneven}")
    return vision


_TEXT: Final = "model.text_model"
_LAYER: Final = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj")
_LAYERS: Final = (*_LAYER, "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm")
_KEYS: Final = RenamedModules(
    {
        **{f"model.layers.{{}}.{part}": f"{_TEXT}.layers.{{}}.{part}" for part in _LAYERS},
        "model.embed_tokens": f"{_TEXT}.embed_tokens",
        "model.norm": f"{_TEXT}.norm",
        "connector.proj": "model.connector.modality_projection.proj",
        **vision_names("model.vision_model."),
    }
)


def _family(architecture: str, model_type: str) -> Family:
    return Family(
        architecture,
        model_type,
        lambda fields: _read(fields, architecture),
        DecoderLayer,
        lambda config: _KEYS,
        f"{_TEXT}.layers.{{}}",
        make=VisionLanguageLM,
    )


SMOLVLM: Final = _family("SmolVLMForConditionalGeneration", "smolvlm")
IDEFICS3: Final = _family("Idefics3ForConditionalGeneration", "idefics3")
