"""Tiny decoders that see pictures, as plain data: nothing here imports torch or transformers.

``make_vision_language_goldens.py`` computed the files in ``data/`` from these cases, ``files.py`` reads them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_GRID: Final = 4  # rows and columns of tiles that have tokens
SPECIAL: Final = (
    "<|im_start|>",
    "<end_of_utterance>",
    "<fake_token_around_image>",
    "<image>",
    "<global-img>",
    *(f"<row_{row + 1}_col_{column + 1}>" for row in range(_GRID) for column in range(_GRID)),
)
FIRST_SPECIAL: Final = 256
"""The first 256 tokens are bytes."""

VOCABULARY: Final = FIRST_SPECIAL + len(SPECIAL) + 3
IMAGE_TOKEN: Final = FIRST_SPECIAL + SPECIAL.index("<image>")
END_TOKEN: Final = FIRST_SPECIAL + SPECIAL.index("<end_of_utterance>")

CHAT_TEMPLATE: Final = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """A user's turn: names of pictures, then text."""

    pictures: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionLanguageCase:
    """One tiny random model, and prompts for it.

    Attributes:
        name: the case's name and the stem of its file in ``data/``.
        twist: what this case covers that the others do not, in one line.
        config: ``config.json``.
        preprocessor: ``preprocessor_config.json``.
        image_tokens: tokens of a tile.
        seed: of the weights.
        turns: prompts, each by itself.
        must_matter: config changes, each of which must move the logits visibly.
        processor: ``processor_config.json``.
        special: special tokens behind those of bytes.
        template: chat template.
        steps: number of tokens that are generated.
    """

    name: str
    twist: str
    config: Mapping[str, Any]
    preprocessor: Mapping[str, Any]
    image_tokens: int
    seed: int
    turns: tuple[Turn, ...]
    must_matter: tuple[Mapping[str, Any], ...] = ()
    processor: Mapping[str, Any] = field(default_factory=dict)
    special: tuple[str, ...] = SPECIAL
    template: str = CHAT_TEMPLATE
    steps: int = 12

    @property
    def image_token(self) -> int:
        """Placeholder token id for image embeddings."""
        return self.config.get("image_token_id", self.config.get("image_token_index"))

    def digest(self) -> str:
        """SHA-256 of everything the golden file depends on."""
        turns = [[turn.pictures, turn.text] for turn in self.turns]
        text = [dict(self.processor), self.special, self.template]
        facts = [dict(self.config), dict(self.preprocessor), self.image_tokens, self.seed, turns, text]
        if self.steps != 12:
            facts.append(self.steps)
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


_TEXT: Final = {
    "attention_bias": False,
    "head_dim": 6,
    "hidden_act": "silu",
    "hidden_size": 28,
    "intermediate_size": 44,
    "max_position_embeddings": 512,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
}
_VISION: Final = {
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 18,
    "image_size": 24,
    "intermediate_size": 31,
    "layer_norm_eps": 1e-3,
    "model_type": "smolvlm_vision",
    "num_attention_heads": 3,
    "num_channels": 3,
    "num_hidden_layers": 2,
    "patch_size": 4,
}

_CLIP_CHANGES: Final = {
    "hidden_act": "quick_gelu",
    "image_size": 20,
    "model_type": "clip_vision_model",
    "num_hidden_layers": 3,
    "patch_size": 5,
}
_LLAVA_SPECIAL: Final = ("<|end|>", "<image>")
_LLAVA_TEMPLATE: Final = (
    "{% for message in messages %}{{ message['role'] | upper }}: "
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>\n' }}{% endif %}{% endfor %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
_INTERNVL_SPECIAL: Final = ("<|end|>", "<img>", "<IMG_CONTEXT>", "</img>", "<video>")
_INTERNVL_VISION: Final = {
    "attention_bias": True,
    "hidden_act": "gelu",
    "hidden_size": 18,
    "image_size": [24, 24],
    "intermediate_size": 31,
    "layer_norm_eps": 1e-3,
    "layer_scale_init_value": 0.1,
    "model_type": "internvl_vision",
    "norm_type": "layer_norm",
    "num_attention_heads": 3,
    "num_channels": 3,
    "num_hidden_layers": 2,
    "patch_size": [4, 4],
    "use_absolute_position_embeddings": True,
    "use_mask_token": False,
    "use_mean_pooling": True,
    "use_qk_norm": False,
}

_GEMMA3_TEXT: Final = {
    "head_dim": 6,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 28,
    "intermediate_size": 44,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "max_position_embeddings": 512,
    "model_type": "gemma3_text",
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "query_pre_attn_scalar": 7,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
    "sliding_window": 10,
    "vocab_size": VOCABULARY,
}
_GEMMA3_SPECIAL: Final = ("<end_of_turn>", "<start_of_image>", "<end_of_image>", "<image_soft_token>")
_GEMMA3_TEMPLATE: Final = (
    "{% for message in messages %}{{ '<' + message['role'] + '>' }}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<start_of_image>' }}{% elif part['type'] == 'text' %}{{ part['text'] | trim }}"
    "{% endif %}{% endfor %}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}{{ '<model>' }}{% endif %}"
)

_PIXTRAL_SPECIAL: Final = ("[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]")
_PIXTRAL_VISION: Final = {
    "hidden_act": "gelu",
    "hidden_size": 24,
    "image_size": 48,
    "intermediate_size": 31,
    "model_type": "pixtral",
    "num_attention_heads": 3,
    "num_channels": 3,
    "num_hidden_layers": 2,
    "patch_size": 4,
    "rope_theta": 10000.0,
}
_PIXTRAL_TEMPLATE: Final = (
    "{% for message in messages %}{{ '[INST]' }}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "{{ '[IMG]' }}{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{{ '[/INST]' }}{% endfor %}"
)
_MISTRAL_TEXT: Final = {**_TEXT, "model_type": "mistral", "num_hidden_layers": 2, "sliding_window": None}
_MANY_PINPOINTS: Final = [[26, 52], [52, 26], [52, 52], [78, 26], [78, 52], [52, 78], [104, 26], [130, 130]]
_PINPOINTS: Final = [[20, 40], [40, 20], [40, 40], [20, 60]]
_QWEN_SPECIAL: Final = ("<|im_end|>", "<|im_start|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
_QWEN_VIDEO: Final = "<|video_pad|>"
_QWEN_IMAGE: Final = FIRST_SPECIAL + _QWEN_SPECIAL.index("<|image_pad|>")
_QWEN_TEMPLATE: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_QWEN_TEXT: Final = {
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 44,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
}
_QWEN_ROPE: Final = {"mrope_section": [2, 1, 1], "rope_theta": 10000.0, "rope_type": "default"}
_QWEN_VISION: Final = {
    "depth": 3,
    "in_channels": 3,
    "num_heads": 3,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_QWEN3_TEXT: Final = {**_QWEN_TEXT, "head_dim": 12, "hidden_size": 28, "model_type": "qwen3_vl_text"}
_QWEN3_ROPE: Final = {
    "mrope_interleaved": True,
    "mrope_section": [3, 2, 1],
    "rope_theta": 5000.0,
    "rope_type": "default",
}
_QWEN2_5_VISION: Final = {
    "fullatt_block_indexes": [1],
    "hidden_act": "silu",
    "hidden_size": 24,
    "intermediate_size": 31,
    "out_hidden_size": 32,
    "window_size": 16,
}
_QWEN3_VISION: Final = {
    "deepstack_visual_indexes": [0, 1],
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 24,
    "intermediate_size": 31,
    "num_position_embeddings": 25,
    "out_hidden_size": 28,
}
_QWEN_TURNS: Final = (
    Turn(("rgb",), "What is this?"),
    Turn(("turned_6", "rgb_wide", "rgb_one_row"), "Which is larger?"),
    Turn((), "Hello"),
)


def _qwen(
    name: str, twist: str, kind: str, text: Mapping[str, Any], vision: Mapping[str, Any], **more: Any
) -> "VisionLanguageCase":
    stem = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL", "qwen3_vl_moe": "Qwen3VLMoe"}[
        kind
    ]
    whole = {**_QWEN_VISION, "model_type": f"{kind}_vision", **vision}
    return VisionLanguageCase(
        name=name,
        twist=twist,
        config={
            "architectures": [f"{stem}ForConditionalGeneration"],
            "image_token_id": _QWEN_IMAGE,
            "model_type": kind,
            "text_config": text,
            "tie_word_embeddings": more.pop("tied", False),
            "video_token_id": _QWEN_IMAGE + 2,
            "vision_config": whole,
            "vision_end_token_id": _QWEN_IMAGE + 1,
            "vision_start_token_id": _QWEN_IMAGE - 1,
        },
        preprocessor={
            "image_processor_type": "Qwen2VLImageProcessor",
            "merge_size": 2,
            "patch_size": 4,
            "size": {"longest_edge": 30 * 64, "shortest_edge": 4 * 64},
            "temporal_patch_size": 2,
        },
        image_tokens=30,
        processor={"processor_class": f"{stem.removesuffix('Moe')}Processor"},
        special=(*_QWEN_SPECIAL, _QWEN_VIDEO),
        template=_QWEN_TEMPLATE,
        turns=_QWEN_TURNS,
        steps=24,
        **more,
    )


CASES: Final = {
    case.name: case
    for case in (
        VisionLanguageCase(
            name="smolvlm",
            twist="pictures cut into tiles, one and several per prompt, of odd sizes, and none",
            config={
                "architectures": ["SmolVLMForConditionalGeneration"],
                "eos_token_id": END_TOKEN,
                "image_token_id": IMAGE_TOKEN,
                "model_type": "smolvlm",
                "scale_factor": 2,
                "text_config": _TEXT,
                "tie_word_embeddings": False,
                "vision_config": _VISION,
            },
            preprocessor={
                "image_processor_type": "SmolVLMImageProcessor",
                "max_image_size": {"longest_edge": 24},
                "size": {"longest_edge": 60},
            },
            image_tokens=9,
            processor={"image_seq_len": 9, "processor_class": "Idefics3Processor"},
            seed=3,
            turns=(
                Turn(("rgb",), "What is this?"),
                Turn(("turned_6", "rgb_one_row"), "Which is larger?"),
                Turn(("rgba",), ""),
                Turn((), "Hello"),
            ),
            must_matter=(
                {"vision_config": {**_VISION, "layer_norm_eps": 1e-1}},
                {"vision_config": {**_VISION, "hidden_act": "relu"}},
                {"vision_config": {**_VISION, "num_attention_heads": 6}},
                {"text_config": {**_TEXT, "rope_theta": 100.0}},
            ),
        ),
        VisionLanguageCase(
            name="idefics3",
            twist="pictures in one tile, squares of nine patches, pixels that fill no patch, a tied head",
            config={
                "architectures": ["Idefics3ForConditionalGeneration"],
                "image_token_id": IMAGE_TOKEN,
                "model_type": "idefics3",
                "scale_factor": 3,
                "text_config": {**_TEXT, "attention_bias": True, "num_hidden_layers": 2, "num_key_value_heads": 4},
                "tie_word_embeddings": True,
                "vision_config": {**_VISION, "image_size": 26, "model_type": "idefics3_vision"},
            },
            preprocessor={
                "do_image_splitting": False,
                "image_processor_type": "Idefics3ImageProcessor",
                "max_image_size": {"longest_edge": 26},
                "size": {"longest_edge": 52},
            },
            image_tokens=4,
            processor={"image_seq_len": 4, "processor_class": "Idefics3Processor"},
            seed=5,
            turns=(Turn(("rgb_wide", "cmyk_jpeg"), "And now?"), Turn(("palette",), "Yes.")),
            must_matter=({"text_config": {**_TEXT, "num_hidden_layers": 2, "num_key_value_heads": 4}},),
        ),
        VisionLanguageCase(
            name="llava",
            twist="CLIP's tower up to its last layer but one, one tile per picture, a Llama",
            config={
                "architectures": ["LlavaForConditionalGeneration"],
                "image_seq_length": 12,
                "image_token_index": FIRST_SPECIAL + 1,
                "model_type": "llava",
                "projector_hidden_act": "gelu",
                "text_config": {**_TEXT, "num_hidden_layers": 2},
                "tie_word_embeddings": False,
                "vision_config": {**_VISION, **_CLIP_CHANGES},
                "vision_feature_layer": -2,
                "vision_feature_select_strategy": "default",
            },
            preprocessor={
                "crop_size": {"height": 20, "width": 20},
                "image_processor_type": "CLIPImageProcessor",
                "size": {"shortest_edge": 20},
            },
            image_tokens=16,
            processor={
                "image_token": "<image>",
                "num_additional_image_tokens": 1,
                "patch_size": 5,
                "processor_class": "LlavaProcessor",
                "vision_feature_select_strategy": "default",
            },
            special=_LLAVA_SPECIAL,
            template=_LLAVA_TEMPLATE,
            seed=7,
            turns=(
                Turn(("rgb",), "What is this?"),
                Turn(("turned_6", "rgb_one_row"), "Which is larger?"),
                Turn((), "Hello"),
            ),
            must_matter=(
                {"vision_feature_layer": -1},
                {"projector_hidden_act": "relu"},
                {"vision_config": {**_VISION, **_CLIP_CHANGES, "num_attention_heads": 6}},
            ),
        ),
        VisionLanguageCase(
            name="llava_siglip",
            twist="SigLIP's tower up to its last layer without the norm, all states, no biases, a tied Qwen2",
            config={
                "architectures": ["LlavaForConditionalGeneration"],
                "image_seq_length": 12,
                "image_token_index": FIRST_SPECIAL + 1,
                "model_type": "llava",
                "multimodal_projector_bias": False,
                "projector_hidden_act": "gelu",
                "text_config": {
                    **{name: value for name, value in _TEXT.items() if name not in ("head_dim", "attention_bias")},
                    "hidden_size": 24,
                    "model_type": "qwen2",
                    "num_hidden_layers": 2,
                    "tie_word_embeddings": True,
                },
                "tie_word_embeddings": True,
                "vision_config": {**_VISION, "model_type": "siglip_vision_model", "vision_use_head": False},
                "vision_feature_layer": -1,
                "vision_feature_select_strategy": "full",
            },
            preprocessor={
                "do_center_crop": False,
                "image_processor_type": "LlavaImageProcessor",
                "size": {"height": 24, "width": 24},
            },
            image_tokens=36,
            processor={
                "image_token": "<image>",
                "num_additional_image_tokens": 0,
                "patch_size": 4,
                "processor_class": "LlavaProcessor",
                "vision_feature_select_strategy": "full",
            },
            special=_LLAVA_SPECIAL,
            template=_LLAVA_TEMPLATE,
            seed=12,
            turns=(Turn(("rgb", "rgb_wide"), "What is this?"), Turn(("rgba",), "")),
        ),
        VisionLanguageCase(
            name="internvl",
            twist="tiles in the grid nearest to the picture's shape, layer scales, squares of patches, a Qwen2",
            config={
                "architectures": ["InternVLForConditionalGeneration"],
                "downsample_ratio": 0.5,
                "image_seq_length": 9,
                "image_token_id": FIRST_SPECIAL + 2,
                "model_type": "internvl",
                "projector_hidden_act": "gelu",
                "text_config": {
                    **{name: value for name, value in _TEXT.items() if name not in ("head_dim", "attention_bias")},
                    "hidden_size": 24,
                    "model_type": "qwen2",
                    "num_hidden_layers": 2,
                },
                "tie_word_embeddings": False,
                "vision_config": _INTERNVL_VISION,
                "vision_feature_layer": -1,
                "vision_feature_select_strategy": "default",
            },
            preprocessor={
                "crop_to_patches": False,
                "image_processor_type": "GotOcr2ImageProcessor",
                "max_patches": 5,
                "min_patches": 1,
                "size": {"height": 24, "width": 24},
            },
            image_tokens=9,
            processor={"image_seq_length": 9, "processor_class": "InternVLProcessor"},
            special=_INTERNVL_SPECIAL,
            template=_LLAVA_TEMPLATE.replace("<image>", "<IMG_CONTEXT>"),
            seed=13,
            turns=(
                Turn(("rgb",), "What is this?"),
                Turn(("turned_6", "rgb_wide"), "Which is larger?"),
                Turn(("rgb_square",), ""),
            ),
            must_matter=(
                {"vision_config": {**_INTERNVL_VISION, "attention_bias": False}},
                {"vision_config": {**_INTERNVL_VISION, "hidden_act": "relu"}},
            ),
        ),
        VisionLanguageCase(
            name="internvl_normed",
            twist="RMSNorms, normed queries and keys, a last norm, no positions, squares of 16 patches, a tied Qwen3",
            config={
                "architectures": ["InternVLForConditionalGeneration"],
                "downsample_ratio": 0.25,
                "image_seq_length": 4,
                "image_token_id": FIRST_SPECIAL + 2,
                "model_type": "internvl",
                "projector_hidden_act": "relu",
                "text_config": {**_TEXT, "model_type": "qwen3", "num_hidden_layers": 2},
                "tie_word_embeddings": True,
                "vision_config": {
                    **_INTERNVL_VISION,
                    "attention_bias": False,
                    "image_size": [32, 32],
                    "norm_type": "rms_norm",
                    "use_absolute_position_embeddings": False,
                    "use_mean_pooling": False,
                    "use_qk_norm": True,
                },
                "vision_feature_layer": -1,
                "vision_feature_select_strategy": "default",
            },
            preprocessor={
                "image_processor_type": "GotOcr2ImageProcessor",
                "max_patches": 2,
                "size": {"height": 32, "width": 32},
            },
            image_tokens=4,
            processor={"image_seq_length": 4, "processor_class": "InternVLProcessor"},
            special=_INTERNVL_SPECIAL,
            template=_LLAVA_TEMPLATE.replace("<image>", "<IMG_CONTEXT>"),
            seed=18,
            turns=(Turn(("rgb", "rgb_tall"), "What is this?"),),
        ),
        VisionLanguageCase(
            name="gemma3",
            twist="pictures whose tokens see each other, in layers with windows and without, pooled patches",
            config={
                "architectures": ["Gemma3ForConditionalGeneration"],
                "boi_token_index": FIRST_SPECIAL + 1,
                "eoi_token_index": FIRST_SPECIAL + 2,
                "image_token_index": FIRST_SPECIAL + 3,
                "mm_tokens_per_image": 16,
                "model_type": "gemma3",
                "text_config": _GEMMA3_TEXT,
                "tie_word_embeddings": True,
                "vision_config": {
                    **_VISION,
                    "image_size": 32,
                    "model_type": "siglip_vision_model",
                    "vision_use_head": False,
                },
            },
            preprocessor={
                "do_pan_and_scan": None,
                "image_processor_type": "Gemma3ImageProcessor",
                "size": {"height": 32, "width": 32},
            },
            image_tokens=16,
            processor={"image_seq_length": 16, "processor_class": "Gemma3Processor"},
            special=_GEMMA3_SPECIAL,
            template=_GEMMA3_TEMPLATE,
            seed=33,
            turns=(
                Turn(("rgb",), "What is this?"),
                Turn(("turned_6", "rgb_wide"), "Which is larger?"),
                Turn((), "Hello"),
            ),
            must_matter=(
                {"text_config": {**_GEMMA3_TEXT, "sliding_window": 60}},
                {"vision_config": {**_VISION, "image_size": 32, "hidden_act": "relu", "vision_use_head": False}},
            ),
        ),
        VisionLanguageCase(
            name="llava_next",
            twist="the whole picture, then tiles of a canvas without its margins; rows of tokens with an end",
            config={
                "architectures": ["LlavaNextForConditionalGeneration"],
                "image_grid_pinpoints": _PINPOINTS,
                "image_token_index": FIRST_SPECIAL + 1,
                "model_type": "llava_next",
                "text_config": {**_TEXT, "model_type": "mistral", "num_hidden_layers": 2, "sliding_window": None},
                "tie_word_embeddings": False,
                "vision_config": {**_VISION, **_CLIP_CHANGES},
                "vision_feature_layer": -2,
                "vision_feature_select_strategy": "default",
            },
            preprocessor={
                "crop_size": {"height": 20, "width": 20},
                "image_grid_pinpoints": _PINPOINTS,
                "image_processor_type": "LlavaNextImageProcessor",
                "size": {"shortest_edge": 20},
            },
            image_tokens=16,
            processor={
                "image_token": "<image>",
                "num_additional_image_tokens": 1,
                "patch_size": 5,
                "processor_class": "LlavaNextProcessor",
                "vision_feature_select_strategy": "default",
            },
            special=_LLAVA_SPECIAL,
            template=_LLAVA_TEMPLATE,
            seed=1,
            turns=(
                Turn(("rgb",), "What is this?"),
                Turn(("rgb_tall", "rgb_wide"), "Which is larger?"),
                Turn((), "Hello"),
            ),
            steps=24,
        ),
        VisionLanguageCase(
            name="granite_vision",
            twist="several states of SigLIP's layers side by side, a Granite with its scales and a tied head",
            config={
                "architectures": ["LlavaNextForConditionalGeneration"],
                "image_grid_pinpoints": [[24, 48], [48, 24]],
                "image_token_index": FIRST_SPECIAL + 1,
                "model_type": "llava_next",
                "text_config": {
                    **{key: value for key, value in _TEXT.items() if key != "head_dim"},
                    "attention_multiplier": 0.3,
                    "embedding_multiplier": 2.0,
                    "hidden_size": 32,
                    "logits_scaling": 0.5,
                    "model_type": "granite",
                    "num_hidden_layers": 2,
                    "residual_multiplier": 0.7,
                    "tie_word_embeddings": True,
                },
                "tie_word_embeddings": True,
                "vision_config": {
                    **_VISION,
                    "model_type": "siglip_vision_model",
                    "num_hidden_layers": 3,
                    "vision_use_head": False,
                },
                "vision_feature_layer": [-4, -3, 2, -1],
                "vision_feature_select_strategy": "full",
            },
            preprocessor={
                "crop_size": {"height": 24, "width": 24},
                "image_grid_pinpoints": [[24, 48], [48, 24]],
                "image_mean": [0.5, 0.5, 0.5],
                "image_processor_type": "LlavaNextImageProcessor",
                "image_std": [0.5, 0.5, 0.5],
                "size": {"height": 24, "width": 24},
            },
            image_tokens=36,
            processor={
                "image_token": "<image>",
                "patch_size": 4,
                "processor_class": "LlavaNextProcessor",
                "vision_feature_select_strategy": "full",
            },
            special=_LLAVA_SPECIAL,
            template=_LLAVA_TEMPLATE,
            seed=21,
            turns=(Turn(("rgb", "turned_6"), "What is this?"),),
            steps=24,
        ),
        VisionLanguageCase(
            name="llava_onevision",
            twist="tiles whose rows shrink between neighbours, the last state of SigLIP's layers, a Qwen2",
            config={
                "architectures": ["LlavaOnevisionForConditionalGeneration"],
                "image_grid_pinpoints": _MANY_PINPOINTS,
                "image_token_index": FIRST_SPECIAL + 1,
                "model_type": "llava_onevision",
                "text_config": {**_QWEN_TEXT, "model_type": "qwen2", "num_hidden_layers": 2, "rope_theta": 10000.0},
                "tie_word_embeddings": False,
                "video_token_index": FIRST_SPECIAL + 2,
                "vision_aspect_ratio": "anyres_max_2",
                "vision_config": {
                    **_VISION,
                    "image_size": 26,
                    "model_type": "siglip_vision_model",
                    "vision_use_head": False,
                },
            },
            preprocessor={
                "image_grid_pinpoints": _MANY_PINPOINTS,
                "image_mean": [0.5, 0.5, 0.5],
                "image_processor_type": "LlavaOnevisionImageProcessor",
                "image_std": [0.5, 0.5, 0.5],
                "size": {"height": 26, "width": 26},
            },
            image_tokens=36,
            processor={
                "num_image_tokens": 36,
                "processor_class": "LlavaOnevisionProcessor",
                "vision_aspect_ratio": "anyres_max_2",
                "vision_feature_select_strategy": "full",
            },
            special=(*_LLAVA_SPECIAL, "<video>"),
            template=_LLAVA_TEMPLATE,
            seed=1,
            turns=(
                Turn(("rgb",), "What is this?"),
                Turn(("rgb_tall",), "And this?"),
                Turn(("rgb_large",), "Which is larger?"),
                Turn((), "Hello"),
            ),
            must_matter=({"vision_feature_layer": -2},),
            steps=24,
        ),
        VisionLanguageCase(
            name="pixtral",
            twist="pictures of any size row by row, with marks between the rows, patches that turn by two frequencies",
            config={
                "architectures": ["LlavaForConditionalGeneration"],
                "image_token_index": FIRST_SPECIAL + 2,
                "model_type": "llava",
                "multimodal_projector_bias": True,
                "projector_hidden_act": "gelu",
                "text_config": _MISTRAL_TEXT,
                "tie_word_embeddings": False,
                "vision_config": _PIXTRAL_VISION,
                "vision_feature_layer": -1,
                "vision_feature_select_strategy": "full",
            },
            preprocessor={
                "image_processor_type": "PixtralImageProcessor",
                "patch_size": {"height": 4, "width": 4},
                "size": {"longest_edge": 26},
            },
            image_tokens=49,
            processor={"patch_size": 4, "processor_class": "PixtralProcessor"},
            special=_PIXTRAL_SPECIAL,
            template=_PIXTRAL_TEMPLATE,
            seed=1,
            turns=(Turn(("rgb", "palette"), "What is this?"),),
            steps=24,
            must_matter=({"vision_config": {**_PIXTRAL_VISION, "rope_theta": 30.0}},),
        ),
        VisionLanguageCase(
            name="mistral3",
            twist="squares of patches, normed and merged channel by channel; a head of its own",
            config={
                "architectures": ["Mistral3ForConditionalGeneration"],
                "image_token_index": FIRST_SPECIAL + 2,
                "model_type": "mistral3",
                "multimodal_projector_bias": False,
                "projector_hidden_act": "gelu",
                "spatial_merge_size": 2,
                "text_config": _MISTRAL_TEXT,
                "tie_word_embeddings": False,
                "vision_config": {**_PIXTRAL_VISION, "hidden_act": "silu"},
                "vision_feature_layer": -1,
            },
            preprocessor={
                "image_processor_type": "PixtralImageProcessor",
                "patch_size": {"height": 4, "width": 4},
                "size": {"longest_edge": 45},
            },
            image_tokens=36,
            processor={"patch_size": 4, "processor_class": "PixtralProcessor", "spatial_merge_size": 2},
            special=_PIXTRAL_SPECIAL,
            template=_PIXTRAL_TEMPLATE,
            seed=1,
            turns=(Turn(("rgb_tall", "turned_6"), "Which is larger?"), Turn((), "Hello")),
            steps=24,
        ),
        _qwen(
            "qwen2_vl",
            "images of any size, one and several per prompt, positions by row and column behind which texts go on",
            "qwen2_vl",
            {**_QWEN_TEXT, "model_type": "qwen2_vl_text", "rope_parameters": _QWEN_ROPE},
            {"embed_dim": 24, "hidden_size": 32, "mlp_ratio": 2},
            seed=1,
            must_matter=(
                {
                    "text_config": {
                        **_QWEN_TEXT,
                        "model_type": "qwen2_vl_text",
                        "rope_parameters": {**_QWEN_ROPE, "mrope_section": [4, 0, 0]},
                    }
                },
            ),
        ),
        _qwen(
            "qwen2_5_vl",
            "windows in some layers of the tower, of images that they do not divide; a tied head",
            "qwen2_5_vl",
            {**_QWEN_TEXT, "model_type": "qwen2_5_vl_text", "rope_parameters": _QWEN_ROPE},
            _QWEN2_5_VISION,
            tied=True,
            seed=2,
            must_matter=({"vision_config": {**_QWEN_VISION, **_QWEN2_5_VISION, "window_size": 800}},),
        ),
        _qwen(
            "qwen3_vl",
            "states of the tower's layers for the decoder's first ones, learned positions, sections by turns",
            "qwen3_vl",
            {**_QWEN3_TEXT, "rope_parameters": _QWEN3_ROPE},
            _QWEN3_VISION,
            seed=2,
            must_matter=(
                {"text_config": {**_QWEN3_TEXT, "rope_parameters": {**_QWEN3_ROPE, "mrope_section": [6, 0, 0]}}},
                {"vision_config": {**_QWEN_VISION, **_QWEN3_VISION, "deepstack_visual_indexes": []}},
            ),
        ),
        _qwen(
            "qwen3_vl_moe",
            "experts in some layers, whose shares add up to 1, with states of the tower's layers behind them",
            "qwen3_vl_moe",
            {
                **_QWEN3_TEXT,
                "mlp_only_layers": [1],
                "model_type": "qwen3_vl_moe_text",
                "moe_intermediate_size": 12,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "rope_parameters": _QWEN3_ROPE,
            },
            _QWEN3_VISION,
            seed=3,
        ),
    )
}
