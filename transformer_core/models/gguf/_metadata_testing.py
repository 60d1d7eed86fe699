"""Metadata of small models, by architecture."""

from typing import Any

LLAMA: dict[str, Any] = {
    "block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 48,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip

DEEPSEEK: dict[str, Any] = {
    **LLAMA, "attention.head_count_kv": 1, "attention.key_length": 10, "attention.value_length": 6,
    "attention.key_length_mla": 12, "attention.value_length_mla": 8, "attention.kv_lora_rank": 6,
    "rope.dimension_count": 4, "rope.scaling.type": "yarn", "rope.scaling.factor": 8.0,
    "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 0.1, "expert_count": 4,
    "expert_used_count": 2, "expert_feed_forward_length": 24, "expert_shared_count": 1, "expert_gating_func": 2,
    "leading_dense_block_count": 1,
}  # fmt: skip

HYBRID: dict[str, Any] = {
    **LLAMA, "attention.key_length": 16, "attention.value_length": 16, "expert_count": 4, "expert_used_count": 2,
    "expert_feed_forward_length": 24, "ssm.conv_kernel": 4, "ssm.state_size": 8, "ssm.group_count": 2,
    "ssm.time_step_rank": 4, "ssm.inner_size": 24,
}  # fmt: skip
OTHERS = {
    "deepseek2": DEEPSEEK,
    "qwen3next": HYBRID,
    "qwen35moe": HYBRID,
    "qwen35": {key: value for key, value in HYBRID.items() if not key.startswith("expert")},
}
