"""Models with GPT's names: BLOOM, Falcon, MPT, StarCoder."""

from typing import Final

from transformer_core.models.gguf.readers._architecture import FUSED_QKV, GgufArchitecture
from transformer_core.models.gguf.readers._common import Source, Values, biased, tied, vocabulary

_CLAMP: Final = "attention.clamp_kqv"
_ALIBI: Final = "attention.max_alibi_bias"
_NORM_EPS: Final = "attention.layer_norm_epsilon"


def _sizes(source: Source, architecture: str, model_type: str) -> Values:
    fields = source.fields
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": vocabulary(source),
        "hidden_size": fields.integer("embedding_length"),
        "num_hidden_layers": fields.integer("block_count"),
        "num_attention_heads": fields.integer("attention.head_count"),
        "layer_norm_epsilon": fields.number(_NORM_EPS),
        "tie_word_embeddings": tied(source),
    }


def _bloom(source: Source) -> Values:
    values = _sizes(source, "BloomForCausalLM", "bloom")
    if source.fields.integer("feed_forward_length") != 4 * values["hidden_size"]:
        source.fields.refuse("feed_forward_length", f"4 times embedding_length ({values['hidden_size']})")
    return {**values, "seq_length": source.fields.integer("context_length")}


def _falcon(source: Source) -> Values:
    """Returns the fields of Falcon; with a norm of attention's own or several heads of keys it is of the 40B's kind."""
    fields, values = source.fields, _sizes(source, "FalconForCausalLM", "falcon")
    kv_heads = fields.integer("attention.head_count_kv", values["num_attention_heads"])
    two_norms = source.file.has("blk.0.attn_norm_2.weight")
    return {
        **values,
        "ffn_hidden_size": fields.integer("feed_forward_length"),
        "max_position_embeddings": fields.integer("context_length"),
        "rope_theta": fields.number("rope.freq_base", 10000.0, above=1.0),
        "num_kv_heads": kv_heads,
        "new_decoder_architecture": kv_heads > 1 or two_norms,
        "num_ln_in_parallel_attn": 2 if two_norms else 1,
        "multi_query": True,
        "bias": biased(source, "attn_qkv"),
    }


def _mpt(source: Source) -> Values:
    fields, values = source.fields, _sizes(source, "MptForCausalLM", "mpt")
    clip = fields.number(_CLAMP, 0.0, above=-1.0)
    greatest = fields.number(_ALIBI, 0.0, above=-1.0)
    attention = {"alibi": greatest > 0, "clip_qkv": clip or None, **({"alibi_bias_max": greatest} if greatest else {})}
    hidden, inner = values["hidden_size"], fields.integer("feed_forward_length")
    if inner % hidden:
        fields.refuse("feed_forward_length", f"a multiple of embedding_length ({hidden})")
    return {
        **values,
        "max_seq_len": fields.integer("context_length"),
        "expansion_ratio": inner // hidden,
        "attn_config": attention,
        "no_bias": not biased(source, "attn_qkv"),
    }


def _starcoder(source: Source) -> Values:
    fields, values = source.fields, _sizes(source, "GPTBigCodeForCausalLM", "gpt_bigcode")
    names = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    return {
        **{names.get(name, name): value for name, value in values.items()},
        "n_inner": fields.integer("feed_forward_length"),
        "n_positions": fields.integer("context_length"),
        "multi_query": fields.integer("attention.head_count_kv", 1) == 1,
        "activation_function": "gelu_pytorch_tanh",
    }


GPT_KINDS: Final = (
    GgufArchitecture("bloom", _bloom, names={"model.embed_norm": "token_embd_norm"}, forms=FUSED_QKV),
    GgufArchitecture(
        "falcon",
        _falcon,
        names={"post_attention_layernorm": "attn_norm"},
        forms=FUSED_QKV | {"attn_norm_2"},
    ),
    GgufArchitecture("mpt", _mpt, frozenset({_CLAMP, _ALIBI}), forms=FUSED_QKV),
    GgufArchitecture("starcoder", _starcoder, forms=FUSED_QKV),
)
