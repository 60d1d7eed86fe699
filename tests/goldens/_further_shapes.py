"""Keys and shapes of further families of Llama's kind."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.goldens._case_types import Config
from tests.goldens._sparse_shapes import sparse_attention, sparse_experts, sparse_feed_forward

Shapes = Iterator[tuple[str, tuple[int, ...]]]

_LAYER_NORMS: Final = {"olmo": (), "apertus": ("attention_layernorm", "feedforward_layernorm")}
_USUAL: Final = ("input_layernorm", "post_attention_layernorm")
_NORMED: Final = {"olmoe": "whole", "dots1": "head", "apertus": "head"}


def _shapes(config: Config) -> Shapes:
    family, d, v = config["model_type"], config["hidden_size"], config["vocab_size"]
    norms, biased = _LAYER_NORMS.get(family, _USUAL), "qkvo" if config.get("attention_bias") else ""
    yield "model.embed_tokens.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name in norms:
            yield f"{prefix}{name}.weight", (d,)
        yield from sparse_attention(config, prefix + "self_attn.", biased, _NORMED.get(family, ""))
        yield from _feed_forward(config, layer, prefix)
    if norms:
        yield "model.norm.weight", (d,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (v, d)


def _feed_forward(config: Config, layer: int, prefix: str) -> Shapes:
    family, d, f = config["model_type"], config["hidden_size"], config["intermediate_size"]
    if family == "dots1":
        yield from sparse_feed_forward(config, layer, prefix)
    elif family == "olmoe":
        yield from sparse_experts(prefix + "mlp.", config["num_experts"], d, f)
    elif family == "apertus":
        yield prefix + "mlp.up_proj.weight", (f, d)
        yield prefix + "mlp.down_proj.weight", (d, f)
        for name, shape in (("alpha_p", (1,)), ("alpha_n", (1,)), ("beta", ()), ("eps", ())):
            yield f"{prefix}mlp.act_fn.{name}", shape
    else:
        for name, shape in (("gate_proj", (f, d)), ("up_proj", (f, d)), ("down_proj", (d, f))):
            yield f"{prefix}mlp.{name}.weight", shape


FURTHER_SHAPES: Final[dict[str, Callable[[Config], Shapes]]] = dict.fromkeys(
    ("olmo", "olmoe", "dots1", "cwm", "apertus"), _shapes
)
