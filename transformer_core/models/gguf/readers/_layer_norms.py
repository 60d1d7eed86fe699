"""Models with layer norms: GPT-2, GPT-NeoX, StableLM, Phi-2, StarCoder2, Nemotron."""

from typing import Final

from transformer_core.models.gguf.readers._architecture import FUSED_QKV, GgufArchitecture
from transformer_core.models.gguf.readers._common import (
    WINDOW,
    Source,
    Values,
    biased,
    common,
    rotated_share,
    tied,
    vocabulary,
    window,
)


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
        partial_rotary_factor=rotated_share(source),
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
        partial_rotary_factor=rotated_share(source),
    )


def _phi2(source: Source) -> Values:
    share = rotated_share(source)
    return common(source, "PhiForCausalLM", "phi", layer_norm=True, hidden_act="gelu_new", partial_rotary_factor=share)


def _starcoder2(source: Source) -> Values:
    values = common(
        source,
        "Starcoder2ForCausalLM",
        "starcoder2",
        layer_norm=True,
        hidden_act="gelu_pytorch_tanh",
        use_bias=biased(source, "attn_output"),
        sliding_window=window(source.fields),
    )
    return {"norm_epsilon": values.pop("layer_norm_eps"), **values}


def _nemotron(source: Source) -> Values:
    values = common(
        source,
        "NemotronForCausalLM",
        "nemotron",
        layer_norm=True,
        hidden_act="relu2",
        attention_bias=biased(source, "attn_output"),
        mlp_bias=biased(source, "ffn_up"),
        partial_rotary_factor=rotated_share(source),
    )
    return {"norm_eps": values.pop("layer_norm_eps"), **values}


_PARALLEL: Final = frozenset({"use_parallel_residual"})

LAYER_NORM_KINDS: Final = (
    GgufArchitecture("gpt2", _gpt2, forms=FUSED_QKV),
    GgufArchitecture("gptneox", _gpt_neox, _PARALLEL, forms=FUSED_QKV),
    GgufArchitecture("stablelm", _stablelm, _PARALLEL),
    GgufArchitecture("phi2", _phi2),
    GgufArchitecture("starcoder2", _starcoder2, frozenset({WINDOW})),
    GgufArchitecture("nemotron", _nemotron),
)
