"""Nemotron-H and Nemotron 3: layers of one mixer each."""

from typing import Any, Final

from transformer_core.models.gguf.readers._architecture import GgufArchitecture
from transformer_core.models.gguf.readers._common import Source, Values, biased, common, with_fields
from transformer_core.models.gguf.readers._states import mamba_parts, without_states

_INNER: Final = "feed_forward_length"
_EPS: Final = "attention.layer_norm_rms_epsilon"
_EXPERTS: Final = frozenset({"expert_count", "expert_group_count", "expert_shared_count", "expert_weights_scale"})


def _kinds(source: Source, wide: str) -> tuple[Source, tuple[str, ...]]:
    """Returns the source with one number per field, and the kind of each layer; ``wide`` is that of layers with F."""
    given = source.fields.values.get(_INNER)
    source, headless = without_states(source)
    inner = [given] * len(headless) if isinstance(given, int) else given
    sizes = set(inner) - {0} if isinstance(inner, list) else set()
    if not isinstance(inner, list) or len(inner) != len(headless) or len(sizes) > 1:
        source.fields.refuse(_INNER, f"a number, or {len(headless)} (block_count) numbers that are 0 or all the same")
    without = ("full_attention", "linear_attention")
    kinds = (wide if size else without[no_heads] for size, no_heads in zip(inner, headless, strict=True))
    eps = source.fields.values.get("attention.layer_norm_epsilon")  # the converter writes it under both names
    known = {_INNER: max(sizes, default=1), **({} if source.fields.has(_EPS) else {_EPS: eps})}
    return with_fields(source, **known), tuple(kinds)


def _nemotron_h(source: Source, wide: str = "mlp", **more: Any) -> Values:
    source, kinds = _kinds(source, wide)
    fields = source.fields
    heads, inner = fields.integer("ssm.time_step_rank"), fields.integer("ssm.inner_size")
    if inner % heads:
        fields.refuse("ssm.inner_size", f"a multiple of ssm.time_step_rank ({heads})")
    return common(
        source,
        "NemotronHForCausalLM",
        "nemotron_h",
        layers_block_type=list(kinds),
        layer_norm_epsilon=fields.number(_EPS),
        attention_bias=_any_biased(source, kinds, "full_attention", "attn_q"),
        mlp_bias=_any_biased(source, kinds, wide, "ffn_up"),
        use_bias=_any_biased(source, kinds, "linear_attention", "ssm_in"),
        use_conv_bias=_any_biased(source, kinds, "linear_attention", "ssm_conv1d"),
        mamba_num_heads=heads,
        mamba_head_dim=inner // heads,
        n_groups=fields.integer("ssm.group_count"),
        ssm_state_size=fields.integer("ssm.state_size"),
        conv_kernel=fields.integer("ssm.conv_kernel"),
        **more,
    )


def _any_biased(source: Source, kinds: tuple[str, ...], kind: str, part: str) -> bool:
    """Returns whether the first layer of a kind has a bias."""
    return kind in kinds and biased(source, part, kinds.index(kind))


def _nemotron_h_moe(source: Source) -> Values:
    fields = source.fields
    latent = "moe_latent_size"
    return _nemotron_h(
        source,
        "moe",
        moe_intermediate_size=fields.integer("expert_feed_forward_length"),
        moe_shared_expert_intermediate_size=fields.integer("expert_shared_feed_forward_length"),
        moe_latent_size=fields.integer(latent) if fields.has(latent) else None,
        n_group=fields.integer("expert_group_count", 1),
        n_routed_experts=fields.integer("expert_count"),
        norm_topk_prob=fields.boolean("expert_weights_norm", True),
        num_experts_per_tok=fields.integer("expert_used_count"),
        routed_scaling_factor=fields.number("expert_weights_scale", 1.0),
        topk_group=fields.integer("expert_group_used_count", 1),
    )


_STATE, _MADE = mamba_parts("mixer")
_NAMES: Final = {
    **_STATE,
    "norm": "attn_norm",
    **{f"mixer.{part}_proj": f"attn_{part}" for part in "qkv"},
    "mixer.o_proj": "attn_output",
    "mixer.gate": "ffn_gate_inp",
    "mixer.fc1_latent_proj": "ffn_latent_down",
    "mixer.fc2_latent_proj": "ffn_latent_up",
    **{f"mixer.{part}_proj": f"ffn_{part}" for part in ("up", "down")},
    **{f"mixer.shared_experts.{part}_proj": f"ffn_{part}_shexp" for part in ("up", "down")},
}
_TENSORS: Final = {
    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
    **{f"mixer.experts.{part}_proj": f"ffn_{part}_exps.weight" for part in ("up", "down")},
}
NEMOTRON_HS: Final = (
    GgufArchitecture("nemotron_h", _nemotron_h, permuted=True, names=_NAMES, made=_MADE, grouped="mixer.norm"),
    GgufArchitecture(
        "nemotron_h_moe",
        _nemotron_h_moe,
        _EXPERTS,
        permuted=True,  # though there is no RoPE
        names=_NAMES,
        tensors=_TENSORS,
        made=_MADE,
        grouped="mixer.norm",
    ),
)
