"""Names of fields in a configuration that are nearly those of fields that are read."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

_SHORT: Final = 8  # letters: a name that is shorter may have one wrong letter, others two
_LEAST: Final = 5

# Fields of transformers 5.23's configurations that are at most two letters from a name that some family reads.
_OTHERS: Final = frozenset(
    """
    _pad_token_id _sliding_window_pattern architecture architectures boa_token_id boi_token_id bos_token_id
    channels cls_token cls_token_id crop_size d_head d_inner d_model decoder dim_head dtype encoder
    encoder_layers encoder_sparse_step eoa_token_id eod_token_id eoi_token_id eos_token_id head_config head_dim
    hidden_sizes is_encoder k_groups kv_lora_rank l_layers layer_scale layer_type layers logit_scale
    logits_soft_cap lqe_layers mamba_d_head mamba_headdim mamba_n_heads mamba_ngroups mamba_num_heads
    mit_intermediate_size mit_num_hidden_layers model_args moe_k mtp_layer_types n_group n_groups n_head n_heads
    n_layer n_layers n_mel_bins n_positions no_bias num_beams num_encoder_layers num_experts_per_token
    num_groups num_labels num_layers num_shared_experts o_groups o_lora_rank out_channels padding_mode padding_q
    patch_sizes position_embeddings_type pre_norm projector_bias q_groups q_lora_rank qk_head_dim qk_layer_norms
    qk_layernorm qk_nope_head_dim qk_rope_head_dim qv_bias r_layers rope_interleave router_scaling_factor scale
    scale_factors shape_size share_embedding shared_experts_intermediate_size sliding_windows softcap
    swiglu_limits time_step_max type_vocab_sizes upscale v_channels v_groups v_head_dim x_layers
    """.split()
)


def near_misses(values: Mapping[str, Any], asked: Collection[str], where: str) -> list[str]:
    """Returns a warning of each field that nothing asked for, if a name is near that was asked for and is absent.

    Args:
        values: fields of a JSON object; objects in it are searched too.
        asked: names that were asked for.
        where: the file.
    """
    return list(_warnings(values, asked, where))


def _warnings(values: Mapping[str, Any], asked: Collection[str], where: str) -> Iterator[str]:
    absent = sorted(name for name in asked if values.get(name) is None and len(name) >= _LEAST)
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _warnings(value, asked, f"{where}: {key}")
        if key in asked or key in _OTHERS or value is None:
            continue
        near = min(
            (name for name in absent if _is_near(key, name)), key=lambda name: _distance(key, name), default=None
        )
        if near is not None:
            yield (
                f"{where}: field {key!r} is not read, and field {near!r}, which is, is absent and has its default: if "
                f"{near!r} is meant, rename the field"
            )


def _is_near(key: str, name: str) -> bool:
    limit = 1 if min(len(key), len(name)) < _SHORT else 2
    return abs(len(key) - len(name)) <= limit and _distance(key, name) <= limit


def _distance(first: str, second: str) -> int:
    """Returns the number of letters to insert, leave out, replace or swap with the next one."""
    before: list[int] = []
    above = list(range(len(second) + 1))
    for row, letter in enumerate(first, 1):
        line = [row]
        for column, other in enumerate(second, 1):
            least = min(above[column] + 1, line[-1] + 1, above[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == second[column - 2] and first[row - 2] == other:
                least = min(least, before[column - 2] + 1)
            line.append(least)
        before, above = above, line
    return above[-1]
