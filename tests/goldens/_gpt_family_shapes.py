"""Keys and shapes of checkpoints with GPT's names: OPT, BioGPT, XGLM, GPT-Neo, GPT-J, CodeGen, BLOOM, Falcon, MPT."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tests.goldens._case_types import Config

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def gpt_sizes(config: Config) -> tuple[int, int, int, int]:
    """L, D, F and V, under whichever names the family has."""

    def first(*names: str) -> int:
        return next((config[name] for name in names if config.get(name)), 0)

    d = first("hidden_size", "n_embd", "d_model", "n_embed")
    inner = first("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size") or 4 * d
    return first("num_hidden_layers", "num_layers", "n_layer", "n_layers"), d, inner, config["vocab_size"]


def _fairseq(decoder: str, norm: str, head: str, positions: int = 0) -> Callable[[Config], Shapes]:
    def shapes(config: Config) -> Shapes:
        layers, d, f, v = gpt_sizes(config)
        yield f"{decoder}.embed_tokens.weight", (v, d)
        if positions:
            yield f"{decoder}.embed_positions.weight", (config["max_position_embeddings"] + positions, d)
        if not config.get("do_layer_norm_before", True):
            norms: tuple[str, ...] = ()
        else:
            norms = (f"{decoder}.{norm}",)
        biased = config.get("enable_bias", True)
        for layer in range(layers):
            prefix = f"{decoder}.layers.{layer}."
            matrices = [(f"self_attn.{name}_proj", d, d) for name in ("k", "v", "q", "out")]
            yield from _matrices(prefix, [*matrices, ("fc1", f, d), ("fc2", d, f)], biased)
            for name in ("self_attn_layer_norm", "final_layer_norm"):
                yield from _norm(prefix + name, d)
        for name in norms:
            yield from _norm(name, d)
        if not config["tie_word_embeddings"]:
            yield f"{head}.weight", (v, d)

    return shapes


def _gpt_neo(config: Config) -> Shapes:
    layers, d, f, v = gpt_sizes(config)
    yield "transformer.wte.weight", (v, d)
    yield "transformer.wpe.weight", (config["max_position_embeddings"], d)
    for layer in range(layers):
        prefix = f"transformer.h.{layer}."
        yield from _norm(prefix + "ln_1", d)
        for name in "kvq":
            yield f"{prefix}attn.attention.{name}_proj.weight", (d, d)
        yield from _matrices(prefix, [("attn.attention.out_proj", d, d)], True)
        yield from _norm(prefix + "ln_2", d)
        yield from _matrices(prefix, [("mlp.c_fc", f, d), ("mlp.c_proj", d, f)], True)
    yield from _norm("transformer.ln_f", d)


def _gptj(config: Config) -> Shapes:
    layers, d, f, v = gpt_sizes(config)
    yield "transformer.wte.weight", (v, d)
    for layer in range(layers):
        prefix = f"transformer.h.{layer}."
        yield from _norm(prefix + "ln_1", d)
        if config["model_type"] == "codegen":
            yield prefix + "attn.qkv_proj.weight", (3 * d, d)
        else:
            for name in "kvq":
                yield f"{prefix}attn.{name}_proj.weight", (d, d)
        yield prefix + "attn.out_proj.weight", (d, d)
        yield from _matrices(prefix, [("mlp.fc_in", f, d), ("mlp.fc_out", d, f)], True)
    yield from _norm("transformer.ln_f", d)
    yield from _matrices("", [("lm_head", v, d)], True)


def _bloom(config: Config) -> Shapes:
    """In the order of the model; published files have no prefix."""
    layers, d, f, v = gpt_sizes(config)
    above = "" if "n_embed" in config else "transformer."
    yield above + "word_embeddings.weight", (v, d)
    yield from _norm(above + "word_embeddings_layernorm", d)
    for layer in range(layers):
        prefix = f"{above}h.{layer}."
        yield from _norm(prefix + "input_layernorm", d)
        yield from _matrices(prefix + "self_attention.", [("query_key_value", 3 * d, d), ("dense", d, d)], True)
        yield from _norm(prefix + "post_attention_layernorm", d)
        yield from _matrices(prefix + "mlp.", [("dense_h_to_4h", f, d), ("dense_4h_to_h", d, f)], True)
    yield from _norm(above + "ln_f", d)
    if not config.get("tie_word_embeddings", True):
        yield "lm_head.weight", (v, d)


def _falcon(config: Config) -> Shapes:
    layers, d, f, v = gpt_sizes(config)
    n = config["num_attention_heads"]
    grouped, h = config["new_decoder_architecture"], d // n
    kv = config["num_kv_heads"] if grouped else 1 if config["multi_query"] else n
    norms = ("ln_attn", "ln_mlp") if grouped else ("input_layernorm",)
    if not config["parallel_attn"]:
        norms = ("post_attention_layernorm", "input_layernorm")
    yield "transformer.word_embeddings.weight", (v, d)
    for layer in range(layers):
        prefix = f"transformer.h.{layer}."
        matrices = [("query_key_value", d + 2 * kv * h, d), ("dense", d, d)]
        yield from _matrices(prefix + "self_attention.", matrices, config["bias"])
        matrices = [("dense_h_to_4h", f, d), ("dense_4h_to_h", d, f)]
        yield from _matrices(prefix + "mlp.", matrices, config["bias"])
        for name in norms:
            yield from _norm(prefix + name, d)
    yield from _norm("transformer.ln_f", d)
    if not config.get("tie_word_embeddings", True):
        yield "lm_head.weight", (v, d)


def _mpt(config: Config) -> Shapes:
    layers, d, f, v = gpt_sizes(config)
    yield "transformer.wte.weight", (v, d)
    for layer in range(layers):
        prefix = f"transformer.blocks.{layer}."
        yield prefix + "norm_1.weight", (d,)
        yield prefix + "attn.Wqkv.weight", (3 * d, d)
        yield prefix + "attn.out_proj.weight", (d, d)
        yield prefix + "norm_2.weight", (d,)
        yield prefix + "ffn.up_proj.weight", (f, d)
        yield prefix + "ffn.down_proj.weight", (d, f)
    yield "transformer.norm_f.weight", (d,)


def _persimmon(config: Config) -> Shapes:
    layers, d, f, v = gpt_sizes(config)
    yield "model.embed_tokens.weight", (v, d)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        yield from _matrices(prefix + "self_attn.", [("query_key_value", 3 * d, d), ("dense", d, d)], True)
        for name in ("q_layernorm", "k_layernorm"):
            yield from _norm(f"{prefix}self_attn.{name}", d // config["num_attention_heads"])
        yield from _matrices(prefix + "mlp.", [("dense_h_to_4h", f, d), ("dense_4h_to_h", d, f)], True)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield from _norm(prefix + name, d)
    yield from _norm("model.final_layernorm", d)
    yield "lm_head.weight", (v, d)


def _norm(name: str, d: int) -> Shapes:
    yield name + ".weight", (d,)
    yield name + ".bias", (d,)


def _matrices(prefix: str, matrices: Iterable[tuple[str, int, int]], biased: bool) -> Shapes:
    for name, out, inner in matrices:
        yield f"{prefix}{name}.weight", (out, inner)
        if biased:
            yield f"{prefix}{name}.bias", (out,)


GPT_FAMILY_SHAPES: Final[dict[str, Callable[[Config], Shapes]]] = {
    "opt": _fairseq("model.decoder", "final_layer_norm", "lm_head", 2),
    "biogpt": _fairseq("biogpt", "layer_norm", "output_projection", 2),
    "xglm": _fairseq("model", "layer_norm", "lm_head"),
    "gpt_neo": _gpt_neo,
    "gptj": _gptj,
    "codegen": _gptj,
    "bloom": _bloom,
    "falcon": _falcon,
    "mpt": _mpt,
    "persimmon": _persimmon,
}
