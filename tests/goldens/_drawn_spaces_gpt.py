"""Spaces of decoders with learned positions, ALiBi, or GPT-J's layers."""

from typing import Any, Final

from tests.goldens._drawn_space_types import ABSENT, Drawn, Space, partial_rope, rope

_FLAGS: Final = [True, False, ABSENT]
_ACTIVATIONS: Final = ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", ABSENT]


def _space(model_type: str, architecture: str, **fields: list[Any] | Drawn) -> Space:
    return {
        "architectures": [[architecture]],
        "model_type": [model_type],
        "vocab_size": [61, 87, 93],
        **fields,
        "tie_word_embeddings": _FLAGS,
        "bos_token_id": [1],
        "eos_token_id": [2],
        "pad_token_id": [None],
    }


def _multiple(of: str, *sizes: int) -> Drawn:
    return lambda config, rng: config[of] * rng.choice(sizes)


_FAIRSEQ: Final[dict[str, Any]] = {
    "num_hidden_layers": [1, 2, 3],
    "num_attention_heads": [1, 2, 3, 4, 6],
    "hidden_size": _multiple("num_attention_heads", 6, 8, 10),
    "max_position_embeddings": [32, 64],
}
_GPTJ: Final[dict[str, Any]] = {
    "n_layer": [1, 2, 3],
    "n_head": [4, 8],
    "n_embd": _multiple("n_head", 6, 8, 10),
    "n_inner": [28, 52, None, ABSENT],
    "n_positions": [32, 64],
    "rotary_dim": [2, 4, 6],
    "activation_function": _ACTIVATIONS,
    "layer_norm_epsilon": [1e-5, 1e-2, ABSENT],
}


def _attention_types(config: Any, rng: Any) -> Any:
    layers = config["num_layers"]
    drawn = [[["global", "local"], layers // 2]] if layers % 2 == 0 else []
    return rng.choice([[[[rng.choice(["global", "local"]) for _ in range(layers)], 1]], drawn or [[["local"], layers]]])


def _kv_heads(config: Any, rng: Any) -> Any:
    if not config.get("new_decoder_architecture"):
        return ABSENT
    heads = config["num_attention_heads"]
    return rng.choice([size for size in range(1, heads + 1) if heads % size == 0])


SPACES: Final[dict[str, Space]] = {
    "OPTForCausalLM": _space(
        "opt",
        "OPTForCausalLM",
        **_FAIRSEQ,
        ffn_dim=[28, 44, 52],
        do_layer_norm_before=_FLAGS,
        _remove_final_layer_norm=_FLAGS,
        activation_function=["relu", "gelu", ABSENT],
        enable_bias=_FLAGS,
        layer_norm_elementwise_affine=_FLAGS,
        word_embed_proj_dim=lambda config, rng: rng.choice([config["hidden_size"], None, ABSENT, ABSENT, 12]),
    ),
    "BioGptForCausalLM": _space(
        "biogpt",
        "BioGptForCausalLM",
        **_FAIRSEQ,
        intermediate_size=[28, 44, 52],
        hidden_act=_ACTIVATIONS,
        scale_embedding=_FLAGS,
        layer_norm_eps=[1e-12, 1e-2],
    ),
    "XGLMForCausalLM": _space(
        "xglm",
        "XGLMForCausalLM",
        num_layers=[1, 2, 3],
        attention_heads=[1, 2, 3, 4, 6],
        d_model=_multiple("attention_heads", 6, 8, 10),
        ffn_dim=[28, 44, 52],
        max_position_embeddings=[32, 64],
        activation_function=_ACTIVATIONS,
        scale_embedding=_FLAGS,
    ),
    "GPTNeoForCausalLM": _space(
        "gpt_neo",
        "GPTNeoForCausalLM",
        num_layers=[1, 2, 3, 4],
        num_heads=[1, 2, 3, 4, 6],
        hidden_size=_multiple("num_heads", 6, 8, 10),
        intermediate_size=[28, 52, None, ABSENT],
        max_position_embeddings=[32, 64],
        window_size=[2, 3, 5, 32],
        attention_types=_attention_types,
        activation_function=_ACTIVATIONS,
        layer_norm_epsilon=[1e-5, 1e-2, ABSENT],
    ),
    "GPTJForCausalLM": _space("gptj", "GPTJForCausalLM", **{**_GPTJ, "n_head": [1, 2, 3, 4]}),
    "CodeGenForCausalLM": _space("codegen", "CodeGenForCausalLM", **_GPTJ),
    "BloomForCausalLM": _space(
        "bloom",
        "BloomForCausalLM",
        n_layer=[1, 2, 3],
        n_head=[1, 2, 3, 4, 5, 6, 7, 8, 12],
        hidden_size=_multiple("n_head", 4, 6, 8),
        layer_norm_epsilon=[1e-5, 1e-2, ABSENT],
        apply_residual_connection_post_layernorm=[False, False, False, ABSENT, True],
    ),
    "FalconForCausalLM": _space(
        "falcon",
        "FalconForCausalLM",
        num_hidden_layers=[1, 2, 3],
        num_attention_heads=[1, 2, 3, 4, 6],
        hidden_size=_multiple("num_attention_heads", 4, 6, 8, 10),
        max_position_embeddings=[32, 64],
        alibi=_FLAGS,
        new_decoder_architecture=_FLAGS,
        num_kv_heads=_kv_heads,
        multi_query=_FLAGS,
        parallel_attn=_FLAGS,
        num_ln_in_parallel_attn=[1, 2, ABSENT, ABSENT],
        bias=_FLAGS,
        ffn_hidden_size=[28, 52, None, ABSENT],
        activation=_ACTIVATIONS,
        layer_norm_epsilon=[1e-5, 1e-2, ABSENT],
        rope_parameters=rope,
    ),
    "MptForCausalLM": _space(
        "mpt",
        "MptForCausalLM",
        n_layers=[1, 2, 3],
        n_heads=[1, 2, 3, 4, 5, 6, 7, 8],
        d_model=_multiple("n_heads", 4, 6, 8),
        max_seq_len=[32, 64],
        layer_norm_epsilon=[1e-5, 1e-2, ABSENT],
        attn_config=lambda config, rng: rng.choice(
            [
                ABSENT,
                {"clip_qkv": rng.choice([None, 0.5, 1.0]), "softmax_scale": rng.choice([None, 0.3])},
                {"alibi_bias_max": rng.choice([4, 8, 16]), "qk_ln": rng.choice([False, False, True])},
            ]
        ),
    ),
    "PersimmonForCausalLM": _space(
        "persimmon",
        "PersimmonForCausalLM",
        **{**_FAIRSEQ, "hidden_size": _multiple("num_attention_heads", 8, 16)},
        intermediate_size=[28, 44, 52],
        hidden_act=["relu2", "gelu", "relu", ABSENT],
        qk_layernorm=_FLAGS,
        layer_norm_eps=[1e-5, 1e-2, ABSENT],
        rope_parameters=partial_rope(0.5, 0.25, 1.0),
    ),
}
