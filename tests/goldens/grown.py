"""Configurations of golden cases at sizes that several devices divide."""

from typing import Any, Final

_FACTOR: Final = 4
# Fields of config.json that are multiplied: numbers of heads, and sizes that these or the devices divide.
_GROWN: Final = frozenset(
    "num_attention_heads num_key_value_heads hidden_size intermediate_size moe_intermediate_size vocab_size n_embd "
    "n_head n_inner linear_num_key_heads linear_num_value_heads shared_expert_intermediate_size mamba_n_heads "
    "mamba_num_heads mamba_d_ssm moe_shared_expert_intermediate_size shared_intermediate_size num_heads d_model "
    "ffn_hidden_size block_ff_dim vocab_size_per_layer_input intermediate_size_mlp "
    "d_ff encoder_attention_heads decoder_attention_heads encoder_ffn_dim decoder_ffn_dim projection_size "
    "n_embed n_heads num_kv_heads attention_heads ffn_dim word_embed_proj_dim".split()
)
_EXPERTS: Final = frozenset({"num_local_experts", "num_experts", "n_routed_experts"})


def grown(config: Any, *, experts: bool = False) -> Any:
    """Returns a configuration with more heads and features, and experts where asked; sizes of heads stay."""
    if not isinstance(config, dict):
        return config
    multiplied = _GROWN | _EXPERTS if experts else _GROWN
    made: dict[str, Any] = {}
    for name, value in config.items():
        if name not in multiplied:
            made[name] = grown(value, experts=experts)
        elif isinstance(value, list):
            made[name] = [item * _FACTOR for item in value]
        else:
            made[name] = value * _FACTOR if type(value) is int else value
    return made
