"""Qwen2-VL (arXiv:2409.12191), Qwen2.5-VL (arXiv:2502.13923) and Qwen3-VL: images of any size, RoPE by row and column.

Qwen2.5-VL's tower has windows; Qwen3-VL's has learned positions, and states for the decoder's first layers.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from lang_core import DType, Module
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import ExpertKeys, InputMajor, Recipe, RecipeOf, RenamedModules, first_of
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._fields import activation_of
from transformer_core.layers._rope_config import RopeConfig
from transformer_core.models.encoders._fused import FUSED_QKV, with_fused
from transformer_core.models.encoders._stack import StackConfig
from transformer_core.models.families._qwen2 import QWEN2
from transformer_core.models.families._qwen3 import QWEN3
from transformer_core.models.families._qwen3_moe import QWEN3_MOE
from transformer_core.models.vision_language._config import DYNAMIC, read_image_token, seeing
from transformer_core.models.vision_language._family import below, vision_language_family
from transformer_core.models.vision_language._grid_model import DeepLayer, GridConfig, GridLM
from transformer_core.models.vision_language._grid_tower import GridVisionConfig

_EPS: Final = 1e-6
_MOST_TOKENS: Final = 1024  # of an image: 28 * 28 pixels each
_IMAGE_TOKEN: Final = 151655
_ROPE: Final = ("rope_parameters", "rope_scaling")
_QWEN2_TEXT: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "max_position_embeddings": 32768,
        "max_window_layers": 80,
        "num_attention_heads": 64,
        "num_hidden_layers": 80,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
        "vocab_size": 152064,
    }
)
_QWEN3_TEXT: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "max_position_embeddings": 128000,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0,
        "vocab_size": 151936,
    }
)


_QWEN3_MOE_TEXT: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "max_position_embeddings": 128000,
        "moe_intermediate_size": 1408,
        "norm_topk_prob": True,
        "num_attention_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 24,
        "num_key_value_heads": 16,
        "rms_norm_eps": 1e-6,
        "rope_theta": 500000.0,
        "vocab_size": 151936,
    }
)


def _decoder(
    fields: ConfigFields, family: Family, defaults: Mapping[str, Any], sections: Sequence[int], *, interleaved: bool
) -> tuple[DecoderConfig, RopeConfig]:
    """Reads the decoder, and RoPE by time, row and column; older files have the decoder's fields beside the tower's."""
    nested = fields.has("text_config")
    text = fields.object("text_config") if nested else fields
    values = {**defaults, **{name: value for name, value in text.values.items() if value is not None}}
    values["tie_word_embeddings"] = fields.boolean("tie_word_embeddings", False) or (
        nested and text.boolean("tie_word_embeddings", False)
    )
    if family is QWEN3_MOE and not text.boolean("norm_topk_prob", True):
        text.refuse("norm_topk_prob", "true, or no such field: shares of the chosen experts add up to 1")
    if text.boolean("use_sliding_window", False):
        text.refuse("use_sliding_window", "false: windows beside images are not supported")
    parts = sections
    for name in filter(text.has, _ROPE):
        rope = text.object(name).values
        parts = rope.get("mrope_section") or parts
        values[name] = {key: value for key, value in rope.items() if not key.startswith("mrope_")}
    decoder = family.read(ConfigFields(values, text.where))
    half = decoder.rope.rotated // 2
    if not isinstance(parts, Sequence) or len(parts) != 3 or not all(type(size) is int and size >= 0 for size in parts):
        text.refuse("mrope_section", "a list of three integers")
    if interleaved:  # transformers cuts what exceeds the head, and gives time the rest
        rows, columns = (sum(turn < 3 * parts[axis] for turn in range(axis, half, 3)) for axis in (1, 2))
        parts = half - rows - columns, rows, columns
    return decoder, replace(decoder.rope, sections=tuple(parts), sections_interleaved=interleaved)


def _vision(fields: ConfigFields, architecture: str, hidden: int, **known: Any) -> GridVisionConfig:
    """Reads the fields that all towers have; ``hidden`` is the decoder's D."""
    patch = _one_number(fields, "patch_size", known.pop("patch", 14))
    merge = fields.integer("spatial_merge_size", 2)
    output = known["output"]
    if output != hidden:
        fields.refuse(known.pop("output_field"), f"{hidden}, the decoder's hidden_size")
    known.pop("output_field")
    stack: StackConfig = known["stack"]
    if stack.hidden % stack.heads or stack.hidden // stack.heads % 4:
        fields.refuse("num_heads", f"heads of a multiple of 4 dims, of the {stack.hidden} in all")
    rope = fields.object("rope_parameters") if fields.has("rope_parameters") else ConfigFields({}, fields.where)
    rope.choice("rope_type", ("axial",), "axial")
    return GridVisionConfig(
        architecture=architecture,
        image=(patch * merge, patch * merge),
        patch=(patch, patch),
        channels=fields.integer("in_channels", 3),
        merge=merge,
        frames=_one_number(fields, "temporal_patch_size", 2),
        rope_base=rope.number("rope_theta", 10000.0, above=1.0),
        **known,
    )


def _one_number(fields: ConfigFields, name: str, default: int) -> int:
    value = fields.values.get(name, default)
    if type(value) is not int or value < 1:
        fields.refuse(name, "an integer of at least 1")
    return value


def _tower_fields(fields: ConfigFields, architecture: str) -> ConfigFields:
    inner = fields.object("vision_config") if fields.has("vision_config") else ConfigFields({}, fields.where)
    # Older files name the whole model in the place of the tower.
    kind = architecture.removesuffix("ForConditionalGeneration")
    names = {
        "Qwen2VL": "qwen2_vl",
        "Qwen2_5_VL": "qwen2_5_vl",
        "Qwen3VL": "qwen3_vl",
        "Qwen3VLMoe": "qwen3_vl_moe",
    }
    inner.choice("model_type", (names[kind], f"{names[kind]}_vision"), names[kind])
    return inner


def _read_qwen2_vl(fields: ConfigFields) -> DecoderConfig:
    name = "Qwen2VLForConditionalGeneration"
    inner = _tower_fields(fields, name)
    embed = inner.integer("embed_dim", 1280)
    stack = StackConfig(
        hidden=embed,
        intermediate=int(embed * inner.number("mlp_ratio", 4)),
        layers=inner.integer("depth", 32),
        heads=inner.integer("num_heads", 16),
        norm_eps=_EPS,
        activation=activation_of(inner, default="quick_gelu"),
    )
    decoder, rope = _decoder(fields, QWEN2, _QWEN2_TEXT, (16, 24, 24), interleaved=False)
    output = inner.integer("hidden_size", 3584)
    vision = _vision(inner, name, decoder.hidden, stack=stack, output=output, output_field="hidden_size")
    return _whole(fields, name, decoder, rope, vision)


def _read_qwen2_5_vl(fields: ConfigFields) -> DecoderConfig:
    name = "Qwen2_5_VLForConditionalGeneration"
    inner = _tower_fields(fields, name)
    stack = StackConfig(
        hidden=inner.integer("hidden_size", 3584),
        intermediate=inner.integer("intermediate_size", 3420),
        layers=inner.integer("depth", 32),
        heads=inner.integer("num_heads", 16),
        norm_eps=_EPS,
        activation=activation_of(inner, default="silu"),
        rms_norm=True,
        gated_mlp=True,
    )
    decoder, rope = _decoder(fields, QWEN2, _QWEN2_TEXT, (16, 24, 24), interleaved=False)
    vision = _vision(
        inner,
        name,
        decoder.hidden,
        stack=stack,
        output=inner.integer("out_hidden_size", 3584),
        output_field="out_hidden_size",
        whole_layers=_layers(inner, "fullatt_block_indexes", (7, 15, 23, 31)),
    )
    window = inner.integer("window_size", 112) // vision.merge // vision.patch[0]
    if not window:
        inner.refuse("window_size", f"at least the side of a token, {vision.merge * vision.patch[0]} pixels")
    return _whole(fields, name, decoder, rope, replace(vision, window=window))


def _read_qwen3_vl(fields: ConfigFields) -> DecoderConfig:
    return _read_deep(fields, "Qwen3VLForConditionalGeneration", QWEN3, _QWEN3_TEXT)


def _read_qwen3_vl_moe(fields: ConfigFields) -> DecoderConfig:
    return _read_deep(fields, "Qwen3VLMoeForConditionalGeneration", QWEN3_MOE, _QWEN3_MOE_TEXT)


def _read_deep(fields: ConfigFields, name: str, family: Family, defaults: Mapping[str, Any]) -> DecoderConfig:
    inner = _tower_fields(fields, name)
    stack = StackConfig(
        hidden=inner.integer("hidden_size", 1152),
        intermediate=inner.integer("intermediate_size", 4304),
        layers=inner.integer("depth", 27),
        heads=inner.integer("num_heads", 16),
        norm_eps=_EPS,
        activation=activation_of(inner, default="gelu_pytorch_tanh"),
    )
    decoder, rope = _decoder(fields, family, defaults, (24, 20, 20), interleaved=True)
    deep = _layers(inner, "deepstack_visual_indexes", (8, 16, 24))
    if len(deep) > decoder.layers or list(deep) != sorted(deep) or any(layer >= stack.layers for layer in deep):
        inner.refuse("deepstack_visual_indexes", f"ascending numbers of layers, up to {decoder.layers} of them")
    vision = _vision(
        inner,
        name,
        decoder.hidden,
        patch=16,
        stack=stack,
        output=inner.integer("out_hidden_size", 3584),
        output_field="out_hidden_size",
        projection_bias=True,
        positions=int(inner.integer("num_position_embeddings", 2304) ** 0.5),
        deep_layers=deep,
    )
    if vision.positions is None or vision.positions**2 != inner.integer("num_position_embeddings", 2304):
        inner.refuse("num_position_embeddings", "the square of a number")
    return _whole(fields, name, decoder, rope, vision)


def _layers(fields: ConfigFields, name: str, default: Sequence[int]) -> tuple[int, ...]:
    value = fields.values.get(name, default)
    if not isinstance(value, list | tuple) or not all(type(layer) is int and layer >= 0 for layer in value):
        fields.refuse(name, "a list of numbers of layers")
    if len(set(value)) != len(value):
        fields.refuse(name, "each layer once")
    return tuple(value)


def _whole(
    fields: ConfigFields, architecture: str, decoder: DecoderConfig, rope: RopeConfig, vision: GridVisionConfig
) -> DecoderConfig:
    image_token = read_image_token(fields, "image_token_id", _IMAGE_TOKEN, decoder)
    if not image_token:
        fields.refuse("image_token_id", "above 0: 0 is the id of padding")
    return seeing(
        decoder,
        architecture,
        GridConfig,
        vision=vision,
        image_rope=rope,
        image_token=image_token,
        image_tokens=_MOST_TOKENS,
        image_form=DYNAMIC,
    )


_LAYER: Final = "vision_model.layers.{}."
_BLOCK: Final = "blocks.{}."
_COMMON: Final = {
    "vision_model.projection": "patch_embed.proj.weight",
    f"{_LAYER}self_attn.qkv_proj": f"{_BLOCK}attn.qkv",
    f"{_LAYER}self_attn.o_proj": f"{_BLOCK}attn.proj",
    f"{_LAYER}attention_norm": f"{_BLOCK}norm1",
    f"{_LAYER}mlp_norm": f"{_BLOCK}norm2",
}
_OLD_MERGER: Final = {
    "connector.merger.norm": "merger.ln_q",
    "connector.merger.linear_1": "merger.mlp.0",
    "connector.merger.linear_2": "merger.mlp.2",
}
_QWEN2_NAMES: Final = {
    **_COMMON,
    **_OLD_MERGER,
    f"{_LAYER}mlp.up_proj": f"{_BLOCK}mlp.fc1",
    f"{_LAYER}mlp.down_proj": f"{_BLOCK}mlp.fc2",
}
_QWEN2_5_NAMES: Final = {
    **_COMMON,
    **_OLD_MERGER,
    **{f"{_LAYER}mlp.{part}_proj": f"{_BLOCK}mlp.{part}_proj" for part in ("gate", "up", "down")},
}
_MERGER: Final = {"norm": "norm", "linear_1": "linear_fc1", "linear_2": "linear_fc2"}
_QWEN3_NAMES: Final = {
    **_COMMON,
    "vision_model.projection_bias": "patch_embed.proj.bias",
    "vision_model.positions": "pos_embed.weight",
    f"{_LAYER}mlp.up_proj": f"{_BLOCK}mlp.linear_fc1",
    f"{_LAYER}mlp.down_proj": f"{_BLOCK}mlp.linear_fc2",
    **{f"connector.merger.{ours}": f"merger.{stored}" for ours, stored in _MERGER.items()},
    **{f"connector.deep.{{}}.{ours}": f"deepstack_merger_list.{{}}.{stored}" for ours, stored in _MERGER.items()},
}


def _recipes(names: Mapping[str, str]) -> Callable[[Any], RecipeOf]:
    keys = RenamedModules(dict(names), above=("model.visual.", "visual."))
    tower = with_fused(keys, FUSED_QKV)
    return lambda config: first_of(
        lambda name, shape, source: tower(name, shape, source) if name.startswith("vision_model.") else None,
        below("connector.", keys),
    )


def _deep_layer(config: DecoderConfig, index: int, dtype: DType) -> Module:
    return DeepLayer(config, index, dtype)


_EXPERTS: Final = re.compile(r"(?P<above>.*\.mlp\.experts)\.(?P<projection>gate|up|down)_proj")


def _experts(name: str, shape: tuple[int, ...], source: Any) -> Recipe | None:
    """Returns the recipes of experts: output-major, as transformers 5 writes them, or input-major, as published."""
    match = _EXPERTS.fullmatch(name)
    if match is None:
        return None
    count, outputs, inputs = shape
    is_down = match["projection"] == "down"
    key = f"{match['above']}.{'down_proj' if is_down else 'gate_up_proj'}"
    whole = outputs if is_down else 2 * outputs
    if source.has(key) and source.spec(key).shape == (count, whole, inputs):
        return _OUTPUT_MAJOR(name, shape, source)
    return InputMajor(key, shape, outputs if match["projection"] == "up" else 0, whole)


_OUTPUT_MAJOR: Final = ExpertKeys()
QWEN2_VL: Final = vision_language_family(
    "Qwen2VLForConditionalGeneration", "qwen2_vl", _read_qwen2_vl, GridLM, _recipes(_QWEN2_NAMES)
)
QWEN2_5_VL: Final = vision_language_family(
    "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", _read_qwen2_5_vl, GridLM, _recipes(_QWEN2_5_NAMES)
)
QWEN3_VL: Final = replace(
    vision_language_family(
        "Qwen3VLForConditionalGeneration", "qwen3_vl", _read_qwen3_vl, GridLM, _recipes(_QWEN3_NAMES)
    ),
    layer=_deep_layer,
)
QWEN3_VL_MOE: Final = replace(
    vision_language_family(
        "Qwen3VLMoeForConditionalGeneration",
        "qwen3_vl_moe",
        _read_qwen3_vl_moe,
        GridLM,
        _recipes(_QWEN3_NAMES),
        text=_experts,
    ),
    layer=_deep_layer,
)
