"""Spaces of further families of Llama's kind, dense and with experts."""

from typing import Any, Final

from tests.goldens._drawn_space_types import ABSENT, Drawn, Space, decoder_space, per_layer, up_to

_FLAGS: Final = [True, False, ABSENT]
_WHOLE_HEADS: Final[dict[str, Any]] = {"head_dim": [ABSENT]}
_TYPES: Final = per_layer("full_attention", "sliding_attention")
_GRANITE: Final[dict[str, Any]] = {
    **_WHOLE_HEADS,
    "attention_bias": _FLAGS,
    "attention_multiplier": [0.4, ABSENT],
    "embedding_multiplier": [1.5, ABSENT],
    "logits_scaling": [0.8, ABSENT],
    "residual_multiplier": [0.7, ABSENT],
    "num_local_experts": [3, 5, 8],
    "num_experts_per_tok": up_to("num_local_experts"),
}
_GROUPED: Final[dict[str, Any]] = {
    "moe_intermediate_size": [18, 26],
    "n_routed_experts": [4, 6, 8],
    "n_shared_experts": [1, 2],
    "n_group": [1, 2, ABSENT],
    "topk_group": [1, ABSENT],
    "num_experts_per_tok": [1, 2],
    "norm_topk_prob": _FLAGS,
    "routed_scaling_factor": [1.7, ABSENT],
}


def _gpt2_space(model_type: str, architecture: str, **fields: list[Any] | Drawn) -> Space:
    """Returns a space with GPT-2's names of fields."""
    return {
        "architectures": [[architecture]],
        "model_type": [model_type],
        "vocab_size": [61, 87, 93],
        "n_layer": [1, 2, 3],
        "n_head": [1, 2, 3, 4, 6],
        "n_embd": lambda config, rng: config["n_head"] * rng.choice([6, 8, 10]),
        "n_inner": [28, 52, None, ABSENT],
        "n_positions": [32, 64],
        "activation_function": ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", ABSENT],
        "layer_norm_epsilon": [1e-5, 1e-2, ABSENT],
        "scale_attn_weights": [True, True, True, ABSENT, False],
        "tie_word_embeddings": [True, False, ABSENT],
        "bos_token_id": [1],
        "eos_token_id": [2],
        "pad_token_id": [None],
        **fields,
    }


SPACES: Final[dict[str, Space]] = {
    "OlmoForCausalLM": decoder_space(
        "olmo",
        "OlmoForCausalLM",
        **_WHOLE_HEADS,
        rms_norm_eps=[ABSENT],
        attention_bias=_FLAGS,
        clip_qkv=[0.5, 2.0, None, ABSENT],
    ),
    "OlmoeForCausalLM": decoder_space(
        "olmoe",
        "OlmoeForCausalLM",
        **_WHOLE_HEADS,
        attention_bias=_FLAGS,
        clip_qkv=[0.5, 2.0, None, ABSENT],
        num_experts=[3, 5, 8],
        num_experts_per_tok=up_to("num_experts"),
        norm_topk_prob=_FLAGS,
    ),
    "Dots1ForCausalLM": decoder_space(
        "dots1",
        "Dots1ForCausalLM",
        head_dim=[8, 12, ABSENT],
        attention_bias=_FLAGS,
        layer_types=_TYPES,
        sliding_window=[3, 5, None, ABSENT],
        max_window_layers=[0, 1, 2, ABSENT],
        first_k_dense_replace=[0, 1, 2, ABSENT],
        moe_intermediate_size=[18, 26],
        n_routed_experts=[4, 6, 8],
        n_shared_experts=[1, 2],
        n_group=[1, 2, ABSENT],
        topk_group=[1, ABSENT],
        num_experts_per_tok=[1, 2],
        norm_topk_prob=_FLAGS,
        routed_scaling_factor=[1.7, ABSENT],
    ),
    "CwmForCausalLM": decoder_space(
        "cwm", "CwmForCausalLM", mlp_bias=_FLAGS, layer_types=_TYPES, sliding_window=[3, 5, 8]
    ),
    "ApertusForCausalLM": decoder_space(
        "apertus", "ApertusForCausalLM", hidden_act=["xielu"] * 5 + [ABSENT, "silu"], attention_bias=_FLAGS
    ),
    "MinistralForCausalLM": decoder_space(
        "ministral", "MinistralForCausalLM", layer_types=_TYPES, sliding_window=[3, 5, None, ABSENT]
    ),
    "VaultGemmaForCausalLM": decoder_space(
        "vaultgemma",
        "VaultGemmaForCausalLM",
        head_dim=[8, 12],
        hidden_act=[ABSENT],
        hidden_activation=["gelu_pytorch_tanh", ABSENT],
        attention_bias=_FLAGS,
        attn_logit_softcapping=[2.0, None, ABSENT],
        final_logit_softcapping=[4.0, None, ABSENT],
        query_pre_attn_scalar=[9, 16],
        layer_types=_TYPES,
        sliding_window=[3, 5],
    ),
    "Jais2ForCausalLM": decoder_space(
        "jais2",
        "Jais2ForCausalLM",
        **_WHOLE_HEADS,
        rms_norm_eps=[ABSENT],
        hidden_act=["relu2", "gelu", ABSENT],
        attention_bias=_FLAGS,
        mlp_bias=_FLAGS,
        layer_norm_eps=[1e-5, 1e-2, ABSENT],
    ),
    "GraniteMoeForCausalLM": decoder_space("granitemoe", "GraniteMoeForCausalLM", **_GRANITE),
    "GraniteMoeSharedForCausalLM": decoder_space(
        "granitemoeshared", "GraniteMoeSharedForCausalLM", **_GRANITE, shared_intermediate_size=[0, 18, 30, ABSENT]
    ),
    "HunYuanMoEV1ForCausalLM": decoder_space(
        "hunyuan_v1_moe",
        "HunYuanMoEV1ForCausalLM",
        head_dim=[8, 12, ABSENT],
        attention_bias=_FLAGS,
        num_experts=[3, 5, 8],
        moe_topk=up_to("num_experts"),
    ),
    "Glm4MoeLiteForCausalLM": decoder_space(
        "glm4_moe_lite",
        "Glm4MoeLiteForCausalLM",
        **_GROUPED,
        head_dim=[ABSENT],
        num_key_value_heads=lambda config, rng: config["num_attention_heads"],
        attention_bias=_FLAGS,
        kv_lora_rank=[12, 18],
        q_lora_rank=[14, 26, None],
        qk_nope_head_dim=[8, 12],
        qk_rope_head_dim=[4, 8],
        v_head_dim=[10, 16],
        rope_interleave=_FLAGS,
        mlp_layer_types=per_layer("dense", "sparse"),
    ),
    "SolarOpenForCausalLM": decoder_space(
        "solar_open", "SolarOpenForCausalLM", **_GROUPED, head_dim=[8, 12], attention_bias=_FLAGS
    ),
    "GPT2LMHeadModel": _gpt2_space("gpt2", "GPT2LMHeadModel"),
    "GPTBigCodeForCausalLM": _gpt2_space("gpt_bigcode", "GPTBigCodeForCausalLM", multi_query=_FLAGS),
    "OpenAIGPTLMHeadModel": {
        **{
            name: values
            for name, values in _gpt2_space("openai-gpt", "OpenAIGPTLMHeadModel").items()
            if name not in ("activation_function", "n_inner", "scale_attn_weights")
        },
        "afn": ["gelu", "relu", "silu", ABSENT],
    },
}
