"""Golden cases inside of models that have further parts: config.json of the whole model."""

from typing import Any, Final

from tests.goldens._case_types import Config
from tests.goldens.cases import CASES

WRAPPED: Final = {
    "Qwen3_5ForConditionalGeneration": ("qwen3_5", "qwen3_5_published"),
    "Qwen3_5MoeForConditionalGeneration": ("qwen3_5_moe", "qwen3_5_moe"),
    "Llama4ForConditionalGeneration": ("llama4", "llama4"),
    "FuyuForCausalLM": ("fuyu", "persimmon"),
}
"""Model type and case, by architecture."""

ALONE: Final = {"Mistral3ForConditionalGeneration": ("mistral3", "ministral3")}
"""Those of models that are read whole, if they have a ``vision_config``: without it here."""


def wrapped_config(architecture: str, **changes: Any) -> Config:
    """Returns the config.json of a whole model around the case's, which is its ``text_config``."""
    model_type, name = (WRAPPED | ALONE)[architecture]
    text = {key: value for key, value in CASES[name].config.items() if key != "architectures"}
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "image_token_id": 7,
        "text_config": text,
        "vision_config": None if architecture in ALONE else {"depth": 1, "hidden_size": 4},
        "tie_word_embeddings": text["tie_word_embeddings"],
        **changes,
    }
