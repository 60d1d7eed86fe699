"""Spaces that configurations are drawn from, and what many of them share."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.goldens._case_types import Config

Drawn = Callable[[Config, random.Random], Any]
"""Function of the fields drawn so far."""
Space = Mapping[str, list[Any] | Drawn]
"""For each field of config.json its values, or a function that draws one; functions see the fields above them."""
ABSENT: Final = object()
"""Value of a field that is left out, so that both sides take their defaults."""


def draw(space: Space, rng: random.Random) -> Config:
    """Draws a configuration, field by field in the order of the space; one of three has RoPE as in transformers 4."""
    config: Config = {}
    for name, values in space.items():
        value = values(config, rng) if callable(values) else rng.choice(values)
        if value is not ABSENT:
            config[name] = value
    return _as_before_5(config) if rng.random() < 1 / 3 else config


def _as_before_5(config: Config) -> Config:
    """Returns a config with transformers 4's fields of RoPE; as it is where layers differ in theirs."""
    parameters = config.get("rope_parameters")
    if parameters is None or "rope_type" not in parameters:
        return config
    apart = ("rope_theta", "partial_rotary_factor")
    scaling = {name: value for name, value in parameters.items() if name not in apart}
    beside = {name: parameters[name] for name in apart if name in parameters}
    others = {name: value for name, value in config.items() if name != "rope_parameters"}
    return {**others, **beside, "rope_scaling": None if scaling == {"rope_type": "default"} else scaling}


def decoder_space(model_type: str, architecture: str, **fields: list[Any] | Drawn) -> Space:
    """Returns a Llama's space with other ``fields``, which are drawn last where a Llama has them not."""
    return {
        "architectures": [[architecture]],
        "model_type": [model_type],
        "vocab_size": [61, 87, 93],
        "num_hidden_layers": [1, 2, 3, 4],
        "num_attention_heads": [1, 2, 3, 4, 6],
        "num_key_value_heads": divisor_of("num_attention_heads"),
        "head_dim": [4, 6, 8, 10],
        "hidden_size": lambda config, rng: config["num_attention_heads"] * rng.choice([10, 12, 14]),
        "intermediate_size": [28, 44, 52],
        "max_position_embeddings": [32, 64],
        "rms_norm_eps": [1e-6, 1e-5, 1e-2],
        "hidden_act": ["silu", "gelu", "gelu_pytorch_tanh", "relu"],
        "tie_word_embeddings": [True, False, ABSENT],
        "rope_parameters": rope,
        "initializer_range": [0.02],
        "bos_token_id": [1],
        "eos_token_id": [2],
        "pad_token_id": [None],
        **fields,
    }


def divisor_of(name: str) -> Drawn:
    """Returns a draw of a divisor of a field."""
    return lambda config, rng: rng.choice([size for size in range(1, config[name] + 1) if config[name] % size == 0])


def up_to(name: str) -> Drawn:
    """Returns a draw of 1 to a field's value."""
    return lambda config, rng: rng.randint(1, config[name])


def per_layer(*values: Any) -> Drawn:
    """Returns a draw of a list with one of the values for each layer; in one of three cases the field is left out."""
    return lambda config, rng: (
        ABSENT if rng.random() < 1 / 3 else [rng.choice(values) for _ in range(config["num_hidden_layers"])]
    )


def rope(config: Config, rng: random.Random) -> Any:
    """Draws the parameters of a RoPE over whole heads, scaled or not; sometimes none."""
    theta = rng.choice([50.0, 300.0, 10000.0])
    yarn = {"factor": rng.choice([2.0, 4.0]), "original_max_position_embeddings": 16}
    return rng.choice(
        [
            ABSENT,
            {"rope_type": "default", "rope_theta": theta},
            {"rope_type": "linear", "rope_theta": theta, "factor": rng.choice([1.5, 4.0])},
            {"rope_type": "yarn", "rope_theta": theta, **yarn, "beta_fast": 4.0, "beta_slow": 1.0},
            {"rope_type": "yarn", "rope_theta": theta, **yarn, "mscale": 1.4, "mscale_all_dim": 0.7, "truncate": False},
            {
                "rope_type": "llama3",
                "rope_theta": theta,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 3.0,
                "original_max_position_embeddings": 16,
            },
        ]
    )


def partial_rope(*shares: float) -> Drawn:
    """Returns a draw as ``rope``, with one of the shares of a head that is rotated, or without."""

    def parameters(config: Config, rng: random.Random) -> Any:
        whole = rope(config, rng)
        some = whole is not ABSENT and rng.random() < 0.8
        return {**whole, "partial_rotary_factor": rng.choice(shares)} if some else whole

    return parameters
