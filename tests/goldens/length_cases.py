"""Golden models whose RoPE depends on the length, with prompts and answers on both sides of the change."""

from dataclasses import replace
from typing import Final

import numpy as np

from tests.goldens.cases import CASES
from tests.goldens.golden_files import DATA
from tests.goldens.weights import sizes_of

LENGTHS: Final = DATA / "lengths.npz"
"""What ``make_length_goldens`` wrote, by ``MODEL_TOKENS``: greedy ``tokens`` [steps] and their ``logits`` [steps, V] of
transformers' generate, and ``whole`` [T + steps, V], the logits of prompt and answer in one pass."""

_LONGROPE: Final = CASES["phi3_longrope_partial"]
MODELS: Final = {
    "longrope": _LONGROPE,
    "longrope_windows": replace(_LONGROPE, config=_LONGROPE.config | {"sliding_window": 6}),
    "dynamic": CASES["llama_dynamic_long"],
}
"""Models by scaling, also with windows in all layers; RoPE of all changes above 16 tokens."""
PROMPTS: Final = (7, 15, 16, 17, 23)
"""Numbers of tokens of the prompts."""
STEPS: Final = 12


def prompt_of(model: str, tokens: int) -> list[int]:
    """Returns the ids of a prompt."""
    *_, vocabulary = sizes_of(MODELS[model].config)
    return [int(token) for token in (np.arange(tokens) * 29 + 3 * tokens + 5) % vocabulary]
