"""Models with states: LFM2, dense and with experts, Mamba-2, Granite 4, Falcon-H1."""

import math
from typing import Any, Final

from transformer_core.checkpoints import Reshaped, Stored
from transformer_core.models.gguf.readers._architecture import GgufArchitecture, Made
from transformer_core.models.gguf.readers._common import Source, Values, biased, common, tied, vocabulary, with_fields
from transformer_core.models.gguf.readers._stored_forms import LogOfNegative

_KV_HEADS: Final = "attention.head_count_kv"
_LFM2_NAMES: Final = {
    "model.norm": "token_embd_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
}


def without_states(source: Source) -> tuple[Source, list[bool]]:
    """Returns the source with one number of key heads, and which layers have none, for they have a state."""
    fields = source.fields
    counts, layers = fields.values.get(_KV_HEADS), fields.integer("block_count")
    counts = [counts] * layers if isinstance(counts, int) else counts
    if not isinstance(counts, list) or len(counts) != layers or len(set(counts) - {0}) > 1:
        fields.refuse(_KV_HEADS, f"a number, or {layers} (block_count) numbers that are 0 or all the same")
    return with_fields(source, **{_KV_HEADS: max(counts, default=0) or 1}), [not count for count in counts]


def _lfm2(source: Source, architecture: str = "Lfm2ForCausalLM", model_type: str = "lfm2", **more: Any) -> Values:
    source, stateful = without_states(source)
    fields = source.fields
    return common(
        source,
        architecture,
        model_type,
        norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        block_auto_adjust_ff_dim=False,
        conv_L_cache=fields.integer("shortconv.l_cache"),
        conv_bias=False,
        layer_types=["conv" if state else "full_attention" for state in stateful],
        **more,
    )


def _lfm2_moe(source: Source) -> Values:
    fields = source.fields
    return _lfm2(
        source,
        "Lfm2MoeForCausalLM",
        "lfm2_moe",
        num_dense_layers=fields.integer("leading_dense_block_count", 0, minimum=0),
        num_experts=fields.integer("expert_count"),
        num_experts_per_tok=fields.integer("expert_used_count"),
        moe_intermediate_size=fields.integer("expert_feed_forward_length"),
        use_expert_bias=True,  # llama.cpp always has the bias, norms and scales by 1
    )


def _mamba2(source: Source) -> Values:
    file, fields = source
    hidden, inner, heads = (fields.integer(n) for n in ("embedding_length", "ssm.inner_size", "ssm.time_step_rank"))
    if inner % hidden or inner % heads:
        fields.refuse("ssm.inner_size", f"a multiple of embedding_length ({hidden}) and ssm.time_step_rank ({heads})")
    return {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "vocab_size": vocabulary(source),
        "hidden_size": hidden,
        "num_hidden_layers": fields.integer("block_count"),
        "num_heads": heads,
        "head_dim": inner // heads,
        "expand": inner // hidden,
        "state_size": fields.integer("ssm.state_size"),
        "n_groups": fields.integer("ssm.group_count"),
        "conv_kernel": fields.integer("ssm.conv_kernel"),
        "layer_norm_epsilon": fields.number("attention.layer_norm_rms_epsilon"),
        "use_bias": biased(source, "ssm_in"),
        "use_conv_bias": file.has("blk.0.ssm_conv1d.bias"),
        "tie_word_embeddings": tied(source),
    }


def _mamba_fields(source: Source, layer: int) -> Values:
    """Returns the ``mamba_`` fields of config.json; ``layer`` is one with a state."""
    file, fields = source
    heads, inner = fields.integer("ssm.time_step_rank"), fields.integer("ssm.inner_size")
    return {
        "mamba_n_heads": heads,
        "mamba_expand": max(1, inner // fields.integer("embedding_length")),
        "mamba_n_groups": fields.integer("ssm.group_count"),
        "mamba_d_state": fields.integer("ssm.state_size"),
        "mamba_d_conv": fields.integer("ssm.conv_kernel"),
        "mamba_conv_bias": file.has(f"blk.{layer}.ssm_conv1d.bias"),
        "mamba_proj_bias": file.has(f"blk.{layer}.ssm_in.bias"),
    }


def _granite_hybrid(source: Source) -> Values:
    source, stateful = without_states(source)
    fields, attending = source.fields, stateful.index(False) if False in stateful else 0
    experts = fields.integer("expert_count", 0, minimum=0)
    shared = "expert_shared_feed_forward_length" if experts else "feed_forward_length"
    return common(
        source,
        "GraniteMoeHybridForCausalLM",
        "granitemoehybrid",
        layer_types=["mamba" if state else "attention" for state in stateful],
        position_embedding_type="rope" if fields.boolean("rope.scaling.finetuned", True) else None,
        attention_bias=source.file.has(f"blk.{attending}.attn_q.bias"),
        num_local_experts=experts,
        num_experts_per_tok=fields.integer("expert_used_count", 1),
        shared_intermediate_size=fields.integer(shared),
        attention_multiplier=fields.number("attention.scale", 1.0),
        embedding_multiplier=fields.number("embedding_scale", 1.0),
        residual_multiplier=fields.number("residual_scale", 1.0),
        logits_scaling=fields.number("logit_scale", 1.0),
        **(_mamba_fields(source, stateful.index(True)) if any(stateful) else {}),
    )


def _falcon_h1(source: Source) -> Values:
    """Returns the fields without scales, which the converter has multiplied into the weights."""
    file, fields = source
    return common(
        source,
        "FalconH1ForCausalLM",
        "falcon_h1",
        mamba_d_ssm=fields.integer("ssm.inner_size"),
        mamba_rms_norm=file.has("blk.0.ssm_norm.weight"),
        mamba_norm_before_gate=False,  # llama.cpp's order
        attention_bias=biased(source, "attn_q"),
        mlp_bias=biased(source, "ffn_up"),
        projectors_bias=biased(source, "ssm_out"),
        **_mamba_fields(source, 0),
    )


def mamba_parts(mixer: str) -> tuple[dict[str, str], dict[str, Made]]:
    """Returns the names of a Mamba-2's tensors, and the recipes of those that llama.cpp changes."""
    names = {f"{mixer}.in_proj": "ssm_in", f"{mixer}.out_proj": "ssm_out", f"{mixer}.conv1d": "ssm_conv1d"}
    made: dict[str, Made] = {
        f"{mixer}.conv1d.weight": lambda above, shape: Reshaped(
            f"{above}.ssm_conv1d.weight", (shape[0], shape[2]), shape
        ),
        f"{mixer}.dt_bias": lambda above, shape: Reshaped(f"{above}.ssm_dt.bias", shape, shape),
        f"{mixer}.A_log": lambda above, shape: LogOfNegative(f"{above}.ssm_a", (*shape, 1), shape),
        f"{mixer}.D": lambda above, shape: Reshaped(f"{above}.ssm_d", (*shape, 1), shape),
    }
    return names, made


_MIXER, _MIXER_MADE = mamba_parts("mixer")
_MAMBA, _MAMBA_MADE = mamba_parts("mamba")
_CONV_MADE: Final[dict[str, Made]] = {
    "conv.conv.weight": lambda above, shape: Reshaped(
        f"{above}.shortconv.conv.weight", (shape[0], math.prod(shape[1:])), shape
    )
}
_SCALES: Final = frozenset({"attention.scale", "embedding_scale", "logit_scale", "residual_scale", "expert_count"})
_FALCON_MADE: Final[dict[str, Made]] = {
    **_MAMBA_MADE,
    "pre_ff_layernorm.weight": lambda above, shape: Stored(f"{above}.ffn_norm", shape),  # without ".weight"
}
_FALCON: Final = {
    **_MAMBA,
    **{f"feed_forward.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}
STATES: Final = (
    GgufArchitecture("lfm2", _lfm2, names=_LFM2_NAMES, made=_CONV_MADE),
    GgufArchitecture(
        "lfm2moe",
        _lfm2_moe,
        frozenset({"expert_count", "leading_dense_block_count"}),
        names=_LFM2_NAMES,
        made=_CONV_MADE,
    ),
    GgufArchitecture("mamba2", _mamba2, names={**_MIXER, "norm": "attn_norm"}, made=_MIXER_MADE, grouped="mixer.norm"),
    GgufArchitecture(
        "granitehybrid", _granite_hybrid, _SCALES, permuted=True, names=_MAMBA, made=_MAMBA_MADE, grouped="mamba.norm"
    ),
    GgufArchitecture("falcon-h1", _falcon_h1, names=_FALCON, made=_FALCON_MADE, grouped="mamba.norm"),
)
