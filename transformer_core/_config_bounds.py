"""Largest values of the integers of a configuration, by field.

A configuration is small and says how much work follows: layers are built one by one, and tables have an entry per head
or position. Every bound is far beyond any model in use, and small enough that a model of that many layers, heads or
experts is refused, or built, in bounded time and memory. ``ConfigFields.integer`` checks them before a value is used.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LARGEST: Final = 2**31 - 1
"""Bound of integers without a bound of their own, such as token ids and positions: indices have 32 bits."""

LARGEST_NUMBER: Final = 2.0**127
"""Bound of numbers: models compute in 32-bit floats."""

_LAYERS: Final = 2048
_HEADS: Final = 1 << 16
_EXPERTS: Final = 1 << 14
_WIDTH: Final = 1 << 24
_HEAD_SIZE: Final = 1 << 16
_VOCABULARY: Final = 1 << 27
_COUNT: Final = 1 << 20

_FIELDS: Final = {
    _LAYERS: """num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers
        block_count decoder_block_count mtp_num_hidden_layers num_nextn_predict_layers nextn_predict_layers
        num_dense_layers first_k_dense_replace leading_dense_block_count num_kv_shared_layers
        attention.shared_kv_layers altup_num_inputs altup.num_inputs num_encoder_blocks""",
    _HEADS: """num_attention_heads num_key_value_heads n_head n_heads num_heads encoder_attention_heads
        decoder_attention_heads attention.head_count attention.head_count_kv mamba_num_heads mamba_n_heads
        linear_num_key_heads linear_num_value_heads num_global_key_value_heads n_groups mamba_n_groups ssm.group_count
        ssm.time_step_rank num_conv_pos_embedding_groups""",
    _EXPERTS: """num_experts num_local_experts n_routed_experts moe_num_experts num_experts_per_tok
        num_experts_per_token top_k_experts moe_k n_shared_experts moe_num_shared_experts expert_count
        expert_used_count expert_shared_count expert_group_count expert_group_used_count n_group topk_group
        moe_topk num_conv_pos_embeddings""",
    _HEAD_SIZE: """head_dim global_head_dim rotary_dim qk_rope_head_dim qk_nope_head_dim v_head_dim d_kv
        linear_key_head_dim linear_value_head_dim mamba_head_dim attention.key_length attention.value_length
        attention.key_length_swa attention.value_length_swa attention.key_length_mla attention.value_length_mla
        rope.dimension_count rope.dimension_count_swa conv_kernel mamba_d_conv linear_conv_kernel_dim conv_L_cache
        frequency_stride time_stride
        ssm.conv_kernel shortconv.l_cache num_mel_bins num_channels patch_size group_size bits num_bits""",
    _WIDTH: """hidden_size d_model n_embd intermediate_size d_ff n_inner moe_intermediate_size
        shared_intermediate_size moe_shared_expert_intermediate_size shared_expert_intermediate_size
        intermediate_size_mlp block_ff_dim block_multiple_of embedding_length feed_forward_length
        expert_feed_forward_length expert_shared_feed_forward_length embedding_length_per_layer_input
        hidden_size_per_layer_input mamba_d_ssm mamba_d_state mamba_expand expand state_size ssm_state_size
        ssm.inner_size ssm.state_size q_lora_rank kv_lora_rank attention.q_lora_rank attention.kv_lora_rank laurel_rank
        moe_latent_size projection_dim projection_size pooler_output_size in_features out_features
        encoder_ffn_dim decoder_ffn_dim decoder_hidden_size adapter_attn_dim classifier_proj_size
        dimension r""",
    _VOCABULARY: "vocab_size type_vocab_size vocab_size_per_layer_input",
    _COUNT: """num_labels relative_attention_num_buckets attention.relative_buckets_count image_size image_seq_len
        max_source_positions max_target_positions num_detection_tokens num_buckets max_bucket_distance""",
}

BOUNDS: Final[Mapping[str, int]] = MappingProxyType(
    {name: bound for bound, names in _FIELDS.items() for name in names.split()}
)
"""Largest value of each field with a bound of its own, in config.json, in metadata of GGUF files and in adapters."""
