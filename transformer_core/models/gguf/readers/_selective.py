"""Mamba of the first version, Falcon-Mamba and Jamba."""

from collections.abc import Sequence
from typing import Final

from transformer_core.checkpoints import Reshaped
from transformer_core.models.gguf.readers._architecture import GgufArchitecture, Made
from transformer_core.models.gguf.readers._common import Source, Values, biased, common, tied, vocabulary
from transformer_core.models.gguf.readers._states import without_states
from transformer_core.models.gguf.readers._stored_forms import LogOfNegative

_INNER: Final = "ssm.inner_size"


def _expansion(source: Source) -> int:
    hidden, inner = source.fields.integer("embedding_length"), source.fields.integer(_INNER)
    if inner % hidden:
        source.fields.refuse(_INNER, f"a multiple of embedding_length ({hidden})")
    return inner // hidden


def _mamba(source: Source) -> Values:
    """Returns the fields of a Mamba; of a Falcon-Mamba if the step's input, B and C are normed."""
    file, fields = source
    eps = fields.number("attention.layer_norm_rms_epsilon")
    values: Values = {
        "vocab_size": vocabulary(source),
        "hidden_size": fields.integer("embedding_length"),
        "num_hidden_layers": fields.integer("block_count"),
        "expand": _expansion(source),
        "state_size": fields.integer("ssm.state_size"),
        "time_step_rank": fields.integer("ssm.time_step_rank"),
        "conv_kernel": fields.integer("ssm.conv_kernel"),
        "layer_norm_epsilon": eps,
        "use_bias": biased(source, "ssm_in"),
        "use_conv_bias": file.has("blk.0.ssm_conv1d.bias"),
        "tie_word_embeddings": tied(source),
    }
    if fields.boolean("ssm.dt_b_c_rms", False):
        return {
            "architectures": ["FalconMambaForCausalLM"],
            "model_type": "falcon_mamba",
            "mixer_rms_eps": eps,
            **values,
        }
    return {"architectures": ["MambaForCausalLM"], "model_type": "mamba", **values}


def _jamba(source: Source) -> Values:
    source, stateful = without_states(source)
    file, fields = source
    layers = fields.integer("block_count")
    sparse = [file.has(f"blk.{layer}.ffn_gate_inp.weight") for layer in range(layers)]
    every, first = _period(source, [not state for state in stateful], "layers with attention")
    expert_every, expert_first = _period(source, sparse, "layers with experts")
    layer = stateful.index(True) if any(stateful) else 0
    return common(
        source,
        "JambaForCausalLM",
        "jamba",
        attn_layer_period=every,
        attn_layer_offset=first,
        expert_layer_period=expert_every,
        expert_layer_offset=expert_first,
        num_experts=fields.integer("expert_count", 1) if any(sparse) else 1,
        num_experts_per_tok=fields.integer("expert_used_count", 1),
        mamba_expand=_expansion(source),
        mamba_d_state=fields.integer("ssm.state_size"),
        mamba_dt_rank=fields.integer("ssm.time_step_rank"),
        mamba_d_conv=fields.integer("ssm.conv_kernel"),
        mamba_conv_bias=file.has(f"blk.{layer}.ssm_conv1d.bias"),
        mamba_proj_bias=file.has(f"blk.{layer}.ssm_in.bias"),
    )


def _period(source: Source, layers: Sequence[bool], what: str) -> tuple[int, int]:
    """Returns the period and the offset of layers of a kind; a period beyond the last layer if there are none."""
    count = len(layers)
    pairs = ((period, offset) for period in range(1, count + 2) for offset in range(min(period, count + 1)))
    for period, offset in pairs:
        if list(layers) == [index % period == offset for index in range(count)]:
            return period, offset
    return source.fields.refuse("block_count", f"{what} at equal distances")


_PARTS: Final = {
    "in_proj": "ssm_in",
    "out_proj": "ssm_out",
    "conv1d": "ssm_conv1d",
    "x_proj": "ssm_x",
    "dt_proj": "ssm_dt",
}
_NORMS: Final = {"dt_layernorm": "ssm_dt_norm", "b_layernorm": "ssm_b_norm", "c_layernorm": "ssm_c_norm"}


def _names(mixer: str) -> dict[str, str]:
    return {f"{mixer}.{name}": stored for name, stored in {**_PARTS, **_NORMS}.items()}


def _made(mixer: str) -> dict[str, Made]:
    """Returns the recipes of a Mamba's tensors that llama.cpp stores in another form."""
    return {
        f"{mixer}.conv1d.weight": lambda above, shape: Reshaped(
            f"{above}.ssm_conv1d.weight", (shape[0], shape[2]), shape
        ),
        f"{mixer}.A_log": lambda above, shape: LogOfNegative(f"{above}.ssm_a", shape, shape),
        f"{mixer}.D": lambda above, shape: Reshaped(f"{above}.ssm_d", shape, shape),
    }


SELECTIVE: Final = (
    GgufArchitecture("mamba", _mamba, names={**_names("mixer"), "norm": "attn_norm"}, made=_made("mixer")),
    GgufArchitecture("jamba", _jamba, frozenset({"expert_count"}), names=_names("mamba"), made=_made("mamba")),
)
