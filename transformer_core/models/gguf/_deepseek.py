"""DeepSeek-V3 and R1 in GGUF files: the configuration, and the two tensors that ``kv_b_proj`` is cut into."""

from typing import Final

import numpy as np

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf._common import Source, Values, common

_SIGMOID: Final = 2  # llama.cpp's number of the function that makes scores of a router's logits
_LOGARITHM: Final = "rope.scaling.yarn_log_multiplier"
_WHOLE: Final = ("attention.key_length", "attention.value_length", "attention.head_count_kv", "rope.dimension_count")


def deepseek(source: Source) -> Values:
    """Returns the fields of DeepSeek-V3, whose attention is stored as that of one head of compressed keys and values.

    Raises:
        ConfigError: the file has a DeepSeek-V2, or a field is missing, of the wrong type or out of range.
    """
    fields = source.fields
    if fields.integer("expert_gating_func", 1, minimum=0) != _SIGMOID:
        fields.refuse("expert_gating_func", f"{_SIGMOID}, the logistic function of DeepSeek-V3")
    rotated = fields.integer("rope.dimension_count")
    # Early files have the sizes of a head in the fields without `_mla`.
    sizes = [f"{name}_mla" if fields.has(f"{name}_mla") else name for name in _WHOLE[:2]]
    query, value = map(fields.integer, sizes)
    if query <= rotated:
        fields.refuse(sizes[0], f"more than rope.dimension_count ({rotated})")
    temperature = 10 * fields.number(_LOGARITHM, 0.0, above=-1.0)  # of both kinds: the file has one number
    plain = {key: value for key, value in fields.values.items() if key not in (*_WHOLE, _LOGARITHM)}
    plain |= {"attention.key_length": rotated, "attention.value_length": rotated}
    values = common(
        Source(source.file, ConfigFields(plain, fields.where)),
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        attention_bias=False,
        kv_lora_rank=fields.integer("attention.kv_lora_rank"),
        q_lora_rank=fields.integer("attention.q_lora_rank") if fields.has("attention.q_lora_rank") else None,
        qk_nope_head_dim=query - rotated,
        qk_rope_head_dim=rotated,
        v_head_dim=value,
        **_experts(fields),
    )
    if temperature and "rope_scaling" in values:
        values["rope_scaling"] |= {"mscale": temperature, "mscale_all_dim": temperature}
    return values


def _experts(fields: ConfigFields) -> Values:
    return {
        "first_k_dense_replace": fields.integer("leading_dense_block_count", 0, minimum=0),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length"),
        "n_group": fields.integer("expert_group_count", 1),
        "n_routed_experts": fields.integer("expert_count"),
        "n_shared_experts": fields.integer("expert_shared_count", 0, minimum=0),
        "norm_topk_prob": fields.boolean("expert_weights_norm", False),
        "num_experts_per_tok": fields.integer("expert_used_count"),
        "routed_scaling_factor": fields.number("expert_weights_scale", 1.0),
        "topk_group": fields.integer("expert_group_used_count", 1),
    }


class JoinedHeads:
    """``kv_b_proj`` [N (plain + value), rank] of keys [N, rank, plain] and values [N, value, rank], head by head.

    Args:
        keys: key of the stored tensor of keys, whose heads are transposed.
        values: key of the stored tensor of values.
        shape: shape of the whole.
        heads: N.
        plain: rows of a head's keys.
    """

    keeps_rows: bool = False

    def __init__(self, keys: str, values: str, shape: tuple[int, ...], heads: int, plain: int) -> None:
        self._keys: Final = keys
        self._values: Final = values
        self._shape: Final = shape
        self._rows: Final = shape[0] // heads
        self._heads: Final = heads
        self._plain: Final = plain

    def stored(self) -> dict[str, tuple[int, ...]]:
        """Returns both keys and their shapes."""
        rank = self._shape[1]
        return {
            self._keys: (self._heads, rank, self._plain),
            self._values: (self._heads, self._rows - self._plain, rank),
        }

    def rows(self, source: WeightSource, start: int, stop: int) -> np.ndarray:
        """Returns a copy of these rows; the heads that contain them are read."""
        first, last = start // self._rows, -(-stop // self._rows)
        keys = source.read_rows(self._keys, first, last).swapaxes(1, 2)
        heads = np.concatenate([keys, source.read_rows(self._values, first, last)], axis=1)
        begin = start - first * self._rows
        return heads.reshape(-1, self._shape[1])[begin : begin + stop - start]
