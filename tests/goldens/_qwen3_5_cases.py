"""Cases of Qwen3.5, dense and with experts, and their ``config.json`` dictionaries.

E is the number of experts, C how many a token chooses.
"""

from typing import Any

from tests.goldens._case_types import Config, GoldenCase, prompt
from tests.goldens._config_forms import common5
from tests.goldens._hybrid_cases import LINEAR, linear_sizes

_FULL = "full_attention"


def qwen3_5_5(*, K: int, H: int, linear: tuple[int, int, int, int, int], sizes: Config, **changes: Any) -> Config:
    """``Qwen3_5TextConfig`` of transformers 5; ``linear`` is key heads, value heads, their sizes, and the taps."""
    return {
        **common5("qwen3_5_text", "Qwen3_5ForCausalLM", K, sizes),
        **linear_sizes(*linear),
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": H,
        "layer_types": [LINEAR if (layer + 1) % 4 else _FULL for layer in range(sizes["L"])],
        "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"},
        **changes,
    }


def qwen3_5_moe_5(*, E: int, C: int, inner: int, shared: int, sizes: Config, **changes: Any) -> Config:
    """``Qwen3_5MoeTextConfig`` of transformers 5, which has no F but those of experts."""
    form = qwen3_5_5(
        sizes={**sizes, "F": 0},
        **{
            "architectures": ["Qwen3_5MoeForCausalLM"],
            "model_type": "qwen3_5_moe_text",
            "moe_intermediate_size": inner,
            "num_experts": E,
            "num_experts_per_tok": C,
            "output_router_logits": False,
            "router_aux_loss_coef": 0.001,
            "shared_expert_intermediate_size": shared,
            **changes,
        },
    )
    return {name: value for name, value in form.items() if name != "intermediate_size"}


_HALF_ROPE = {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"}

QWEN3_5_CASES = (
    GoldenCase(
        name="qwen3_5",
        twist="Gated DeltaNets with a projection each for z, b and a; dense; hidden states",
        config=qwen3_5_5(
            K=2,
            H=16,
            linear=(2, 6, 8, 5, 4),
            sizes=dict(D=40, F=52, V=93, L=4, N=4),
        ),
        form="5.x",
        seed=300,
        prompt=prompt(37, vocab=93),
        hidden=True,
        must_matter=({"rope_parameters": _HALF_ROPE},),
    ),
    GoldenCase(
        name="qwen3_5_published",
        twist="the published text_config: an interval, sections of RoPE, tied; batch of 2, bf16",
        config={
            **{
                name: value
                for name, value in qwen3_5_5(
                    K=1, H=24, linear=(3, 3, 6, 8, 3), sizes=dict(D=32, F=58, V=85, L=3, N=2)
                ).items()
                if name != "layer_types"
            },
            "attn_output_gate": True,
            "full_attention_interval": 2,
            "mamba_ssm_dtype": "float32",
            "mtp_num_hidden_layers": 1,
            "mtp_use_dedicated_embeddings": False,
            "rope_parameters": {
                "mrope_interleaved": True,
                "mrope_section": [3, 2, 1],
                "partial_rotary_factor": 0.5,
                "rope_theta": 10000000,
                "rope_type": "default",
            },
            "tie_word_embeddings": True,
            "transformers_version": "4.57.0.dev0",
        },
        form="4.x",
        seed=301,
        prompt=prompt(9, 9, vocab=85),
        stored="bf16",
        must_matter=({"full_attention_interval": 3},),
    ),
    GoldenCase(
        name="qwen3_5_moe",
        twist="experts in every layer, chosen ones normalised, a gated shared one",
        config=qwen3_5_moe_5(
            E=5,
            C=2,
            inner=14,
            shared=18,
            K=2,
            H=16,
            linear=(2, 4, 8, 6, 4),
            sizes=dict(D=36, V=91, L=4, N=4),
        ),
        form="5.x",
        seed=302,
        prompt=prompt(21, vocab=91),
        must_matter=({"num_experts_per_tok": 1},),
    ),
)
