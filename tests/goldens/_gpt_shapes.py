"""Keys and shapes of checkpoints of GPT-NeoX, GPT-1, GPT-2 and GPT-BigCode, which share no names with the others."""

from collections.abc import Iterator

from tests.goldens._case_types import Config

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def gpt_neox_shapes(config: Config) -> Shapes:
    """In the order of the model; matrices are ``[out, in]``."""
    d, f, v = (config[k] for k in ("hidden_size", "intermediate_size", "vocab_size"))
    yield "gpt_neox.embed_in.weight", (v, d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"gpt_neox.layers.{layer}."
        yield from _norm(prefix + "input_layernorm", d)
        yield from _norm(prefix + "post_attention_layernorm", d)
        for name, out, inner in (
            ("attention.query_key_value", 3 * d, d),
            ("attention.dense", d, d),
            ("mlp.dense_h_to_4h", f, d),
            ("mlp.dense_4h_to_h", d, f),
        ):
            yield f"{prefix}{name}.weight", (out, inner)
            yield f"{prefix}{name}.bias", (out,)
    yield from _norm("gpt_neox.final_layer_norm", d)
    yield "embed_out.weight", (v, d)


def gpt2_shapes(config: Config) -> Shapes:
    """In the order of the model; matrices are ``[in, out]``. Files of transformers 4 have no prefix."""
    d, f, v = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"], config["vocab_size"]
    above = "" if "n_ctx" in config else "transformer."
    yield above + "wte.weight", (v, d)
    yield above + "wpe.weight", (config["n_positions"], d)
    for layer in range(config["n_layer"]):
        prefix = f"{above}h.{layer}."
        yield from _norm(prefix + "ln_1", d)
        yield from _norm(prefix + "ln_2", d)
        for name, inner, out in (
            ("attn.c_attn", d, 3 * d),
            ("attn.c_proj", d, d),
            ("mlp.c_fc", d, f),
            ("mlp.c_proj", f, d),
        ):
            yield f"{prefix}{name}.weight", (inner, out)
            yield f"{prefix}{name}.bias", (out,)
    yield from _norm(above + "ln_f", d)
    if not config.get("tie_word_embeddings", True):
        yield "lm_head.weight", (v, d)


def openai_gpt_shapes(config: Config) -> Shapes:
    """In the order of the model; matrices are ``[in, out]``."""
    d, v = config["n_embd"], config["vocab_size"]
    yield "transformer.tokens_embed.weight", (v, d)
    yield "transformer.positions_embed.weight", (config["n_positions"], d)
    for layer in range(config["n_layer"]):
        prefix = f"transformer.h.{layer}."
        for name, inner, out in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d)):
            yield f"{prefix}{name}.weight", (inner, out)
            yield f"{prefix}{name}.bias", (out,)
        yield from _norm(prefix + "ln_1", d)
        for name, inner, out in (("mlp.c_fc", d, 4 * d), ("mlp.c_proj", 4 * d, d)):
            yield f"{prefix}{name}.weight", (inner, out)
            yield f"{prefix}{name}.bias", (out,)
        yield from _norm(prefix + "ln_2", d)
    if not config.get("tie_word_embeddings", True):
        yield "lm_head.weight", (v, d)


def gpt_bigcode_shapes(config: Config) -> Shapes:
    """In the order of the model; matrices are ``[out, in]``."""
    d, f, v = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"], config["vocab_size"]
    kv = d // config["n_head"] if config.get("multi_query", True) else d
    yield "transformer.wte.weight", (v, d)
    yield "transformer.wpe.weight", (config["n_positions"], d)
    for layer in range(config["n_layer"]):
        prefix = f"transformer.h.{layer}."
        yield from _norm(prefix + "ln_1", d)
        for name, out, inner in (("attn.c_attn", d + 2 * kv, d), ("attn.c_proj", d, d)):
            yield f"{prefix}{name}.weight", (out, inner)
            yield f"{prefix}{name}.bias", (out,)
        yield from _norm(prefix + "ln_2", d)
        for name, out, inner in (("mlp.c_fc", f, d), ("mlp.c_proj", d, f)):
            yield f"{prefix}{name}.weight", (out, inner)
            yield f"{prefix}{name}.bias", (out,)
    yield from _norm("transformer.ln_f", d)
    if not config.get("tie_word_embeddings", True):
        yield "lm_head.weight", (v, d)


def _norm(name: str, d: int) -> Shapes:
    yield name + ".weight", (d,)
    yield name + ".bias", (d,)
