"""Greedy decoding of models to which transformers' ``generate`` gives other positions than their own forward has."""

from typing import Any, Final

import numpy as np
import torch
from transformers import DynamicCache
from transformers.models.minimax.modeling_minimax import MiniMaxCache

OWN_POSITIONS: Final = (
    "roberta",
    "xlm-roberta",
    "camembert",
    "data2vec-text",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
)
"""Model types that count positions from the row after the padding's; ``generate`` hands them numbers from 0 on."""


def own_cache(model: Any) -> DynamicCache:
    """Returns an empty cache of the class that the model takes."""
    return MiniMaxCache() if model.config.model_type == "minimax" else DynamicCache(config=model.config)


def greedy(model: Any, prompt: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns tokens [B, steps] and logits [B, steps, V] of a cached decode in which the model numbers positions.

    Raises:
        ValueError: a token is the padding, which has a position of its own.
    """
    cache, ids = own_cache(model), torch.from_numpy(prompt)
    tokens: list[np.ndarray] = []
    logits: list[np.ndarray] = []
    for _ in range(steps):
        logits.append(model(ids, past_key_values=cache, use_cache=True).logits[:, -1].numpy())
        ids = torch.from_numpy(logits[-1].argmax(-1)[:, None])
        tokens.append(ids.numpy())
    whole = np.concatenate(tokens, 1)
    if (np.concatenate([prompt, whole], 1) == model.config.pad_token_id).any():
        raise ValueError("a token is the padding")
    return whole, np.stack(logits, 1)
