"""The demo model's sizes and tokens, as Hugging Face's config files state them."""

from typing import Any, Final

VOCABULARY_SIZE: Final = 512
"""Number of tokens of the demo model."""
BOS: Final = "<|begin|>"
"""Token that begins a text of the demo model."""
BOS_ID: Final = 0
"""Id of the token that begins a text."""
EOS: Final = "<|end|>"
"""Token that ends a text of the demo model."""
EOS_ID: Final = 1
"""Id of the token that ends a text."""

CONFIG: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
}
"""Contents of the demo model's config.json."""

GENERATION_CONFIG: Final[dict[str, Any]] = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID}

TOKENIZER_CONFIG: Final[dict[str, Any]] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": BOS,
    "eos_token": EOS,
    "model_max_length": CONFIG["max_position_embeddings"],
    "clean_up_tokenization_spaces": False,
}
