"""Configurations as Hugging Face writes them, small ones."""

from typing import Any, Final

from transformer_core.models import DecoderConfig

MINIMAL: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 24,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "num_attention_heads": 6,
    "num_hidden_layers": 3,
    "rms_norm_eps": 1e-6,
    "vocab_size": 50,
}


def read(architecture: str = "Llama", **changes: Any) -> DecoderConfig:
    """A ``None`` takes a field away; use ``"null"`` for one that is null."""
    config = {**MINIMAL, "architectures": [f"{architecture}ForCausalLM"], **changes}
    present = {name: None if value == "null" else value for name, value in config.items() if value is not None}
    return DecoderConfig.from_hf(present, "dir/config.json")
