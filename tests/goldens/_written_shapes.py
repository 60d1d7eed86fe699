"""Keys and shapes of checkpoints as transformers wrote them, for model types without a function of ``_shapes``."""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any, Final

from tests.goldens._case_types import Config

FILE: Final = Path(__file__).parent / "data" / "shapes.json"
COMPUTED: Final = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""Ends of keys of MiniMax's buffers, which transformers computes if a checkpoint lacks them."""


def digest_of(config: Config) -> str:
    """Returns the key of a configuration in the file."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def is_written(config: Config) -> bool:
    """Returns whether the file has the checkpoint of a configuration."""
    return digest_of(config) in _entries().get(config["model_type"], {})


def is_known(config: Config) -> bool:
    """Returns whether the file has a checkpoint of the model type."""
    return config["model_type"] in _entries()


def written_shapes(config: Config, *, unused: bool = False) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each key that the model uses, or of the others.

    Raises:
        KeyError: the file lacks the configuration.
    """
    patterns = _entries()[config["model_type"]].get(digest_of(config))
    if patterns is None:
        raise KeyError(f"{FILE.name} lacks a configuration: run python -m tests.goldens.make_shape_goldens: {config}")
    shapes = {
        key.replace("{}", layer): tuple(shape)
        for layers, of_layer in patterns
        for layer in layers
        for key, shape in of_layer.items()
    }
    return {key: shape for key, shape in shapes.items() if _is_unused(key, shapes) == unused}


def _is_unused(key: str, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Returns whether causal logits do not depend on a tensor."""
    if key.endswith(".encoder.embed_positions.weight"):
        return True
    return ".pooler." in key or (key == "cls.predictions.bias" and "cls.predictions.decoder.bias" in shapes)


@functools.cache
def _entries() -> dict[str, dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8"))
