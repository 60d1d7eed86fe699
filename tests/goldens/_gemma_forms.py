"""``config.json`` dictionaries of the later Gemmas, and of the files that wrap them."""

from typing import Any

from tests.goldens._case_types import Config


def gemma3_wrapped_4_50(*, K: int, H: int, sizes: Config, **changes: Any) -> Config:
    """google/gemma-3-4b-it: ``text_config`` beside a SigLIP tower; what equals the defaults is left out."""
    text = {
        "head_dim": H,
        "hidden_size": sizes["D"],
        "intermediate_size": sizes["F"],
        "model_type": "gemma3_text",
        "num_attention_heads": sizes["N"],
        "num_hidden_layers": sizes["L"],
        "num_key_value_heads": K,
        "query_pre_attn_scalar": 12,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 5,
        "vocab_size": sizes["V"],
    }
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 3,
        "eoi_token_index": 4,
        "eos_token_id": [1, 2],
        "image_token_index": 5,
        "initializer_range": 0.02,
        "mm_tokens_per_image": 4,
        "model_type": "gemma3",
        "text_config": text | changes,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.50.0.dev0",
        "vision_config": {
            "hidden_size": 8,
            "image_size": 4,
            "intermediate_size": 10,
            "model_type": "siglip_vision_model",
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "patch_size": 2,
            "vision_use_head": False,
        },
    }
