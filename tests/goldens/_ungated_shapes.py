"""Keys and shapes of dense families with layer norms, or without a gate in the feed-forward."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.goldens._case_types import Config

Shapes = Iterator[tuple[str, tuple[int, ...]]]

_OUTPUT: Final = {"phi": "dense"}
_INNER: Final = {
    "phi": ("fc1", "fc2"),
    "starcoder2": ("c_fc", "c_proj"),
    "helium": ("gate_proj", "up_proj", "down_proj"),
}
_LAYER_NORMS: Final = ("phi", "starcoder2", "nemotron")


def _shapes(config: Config) -> Shapes:
    family, d, v = config["model_type"], config["hidden_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield from _norm(config, prefix + "input_layernorm")
        yield from _attention(config, prefix + "self_attn.")
        if family != "phi":
            yield from _norm(config, prefix + "post_attention_layernorm")
        yield from _feed_forward(config, prefix + "mlp.")
    yield from _norm(config, "model.final_layernorm" if family == "phi" else "model.norm")
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)
    if family == "phi":
        yield "lm_head.bias", (v,)


def _norm(config: Config, name: str) -> Shapes:
    yield f"{name}.weight", (config["hidden_size"],)
    if config["model_type"] in _LAYER_NORMS:
        yield f"{name}.bias", (config["hidden_size"],)


def _attention(config: Config, prefix: str) -> Shapes:
    family, d, n = config["model_type"], config["hidden_size"], config["num_attention_heads"]
    h, k = config.get("head_dim") or d // n, config["num_key_value_heads"]
    biased = family == "phi" or config.get("attention_bias") or config.get("use_bias")
    last = (_OUTPUT.get(family, "o_proj"), (d, n * h))
    for name, shape in (("q_proj", (n * h, d)), ("k_proj", (k * h, d)), ("v_proj", (k * h, d)), last):
        yield f"{prefix}{name}.weight", shape
        if biased:
            yield f"{prefix}{name}.bias", shape[:1]
    if config.get("qk_layernorm"):
        yield from ((f"{prefix}{x}_layernorm.{part}", (h,)) for x in "qk" for part in ("weight", "bias"))


def _feed_forward(config: Config, prefix: str) -> Shapes:
    family, d, f = config["model_type"], config["hidden_size"], config["intermediate_size"]
    *inner, last = _INNER.get(family, ("up_proj", "down_proj"))
    biased = family == "phi" or config.get("mlp_bias") or config.get("use_bias")
    for name, shape in [*((name, (f, d)) for name in inner), (last, (d, f))]:
        yield f"{prefix}{name}.weight", shape
        if biased:
            yield f"{prefix}{name}.bias", shape[:1]


UNGATED_SHAPES: Final[dict[str, Callable[[Config], Shapes]]] = dict.fromkeys(
    ("phi", "starcoder2", "nemotron", "arcee", "helium"), _shapes
)
