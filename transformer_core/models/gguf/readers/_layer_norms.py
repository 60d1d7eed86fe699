"""Models with layer norms: GPT-2, GPT-NeoX, StableLM."""

from typing import Final

from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import Source, Values, biased, common, tied, vocabulary


def _gpt2(source: Source) -> Values:
    """Returns the fields of GPT-2."""
    fields = source.fields
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocabulary(source),
        "n_embd": fields.integer("embedding_length"),
        "n_inner": fields.integer("feed_forward_length"),
        "n_layer": fields.integer("block_count"),
        "n_head": fields.integer("attention.head_count"),
        "n_positions": fields.integer("context_length"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
        "tie_word_embeddings": tied(source),
    }


def _gpt_neox(source: Source) -> Values:
    """Returns the fields of GPT-NeoX and Pythia."""
    return common(
        source,
        "GPTNeoXForCausalLM",
        "gpt_neox",
        layer_norm=True,
        hidden_act="gelu",
        use_parallel_residual=source.fields.boolean("use_parallel_residual", True),
        partial_rotary_factor=_rotated_share(source),
    )


def _stablelm(source: Source) -> Values:
    """Returns the fields of StableLM without norms of heads; parallel attention and feed-forward share one norm."""
    return common(
        source,
        "StableLmForCausalLM",
        "stablelm",
        layer_norm=True,
        use_qkv_bias=biased(source, "attn_q"),
        use_parallel_residual=not source.file.has("blk.0.ffn_norm.weight"),
        qk_layernorm=source.file.has("blk.0.attn_q_norm.weight"),
        partial_rotary_factor=_rotated_share(source),
    )


def _rotated_share(source: Source) -> float:
    """Returns the rotated share of a head, also where it is 1: both families have another default."""
    fields = source.fields
    head_size = fields.integer("embedding_length") // fields.integer("attention.head_count")
    return fields.integer("rope.dimension_count", head_size) / head_size


_PARALLEL: Final = frozenset({"use_parallel_residual"})

LAYER_NORM_KINDS: Final = (
    GgufArchitecture("gpt2", _gpt2),
    GgufArchitecture("gptneox", _gpt_neox, _PARALLEL),
    GgufArchitecture("stablelm", _stablelm, _PARALLEL),
)
