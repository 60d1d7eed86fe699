"""Tiny decoders that see pictures, as plain data: nothing here imports torch or transformers.

``make_vision_language_goldens.py`` computed the files in ``data/`` from these cases, ``files.py`` reads them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
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
    """

    name: str
    twist: str
    config: Mapping[str, Any]
    preprocessor: Mapping[str, Any]
    image_tokens: int
    seed: int
    turns: tuple[Turn, ...]
    must_matter: tuple[Mapping[str, Any], ...] = ()

    def digest(self) -> str:
        """SHA-256 of everything the golden file depends on."""
        turns = [[turn.pictures, turn.text] for turn in self.turns]
        facts = [dict(self.config), dict(self.preprocessor), self.image_tokens, self.seed, turns]
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
            seed=5,
            turns=(Turn(("rgb_wide", "cmyk_jpeg"), "And now?"), Turn(("palette",), "Yes.")),
            must_matter=({"text_config": {**_TEXT, "num_hidden_layers": 2, "num_key_value_heads": 4}},),
        ),
    )
}
