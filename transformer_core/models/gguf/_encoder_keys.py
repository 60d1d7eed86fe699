"""Tensors of a GGUF file that encoders of texts are made of."""

import re
from typing import Any, Final

from lang_core import WeightSource
from transformer_core.checkpoints import Cut, Recipe, Stored
from transformer_core.models.encoders import DecoderEncoderConfig, TextConfig
from transformer_core.models.gguf._keys import GgufKeys
from transformer_core.models.gguf.readers import GgufArchitecture

_WHOLE: Final = {
    "embeddings.tokens": "token_embd",
    "embeddings.positions": "position_embd",
    "embeddings.types": "token_types",
    "embeddings.norm": "token_embd_norm",
}
_IN_LAYERS: Final = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "attention_norm": "attn_output_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp_norm": "layer_output_norm",
}
_QKV: Final = ("attn_q", "attn_k", "attn_v")
_LAYER: Final = re.compile(r"encoder\.layers\.(\d+)\.(.+)")
_DENSE: Final = re.compile(r"sentence\.dense\.(\d+)\.weight")


def text_keys(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    """Returns the recipe of a parameter of a ``TextModel``."""
    match = _LAYER.fullmatch(name)
    module, _, kind = (name if match is None else match[2]).rpartition(".")
    if match is None:
        return Stored(f"{_WHOLE.get(module, module)}.{kind}", shape)
    part, above = _IN_LAYERS.get(module, module), f"blk.{match[1]}"
    whole = f"{above}.attn_qkv.{kind}"
    if part in _QKV and source.has(whole):
        start = _QKV.index(part) * shape[0]
        return Cut(whole, (3 * shape[0], *shape[1:]), 0, start, start + shape[0])
    return Stored(f"{above}.{part}.{kind}", shape)


class DecoderEncoderKeys(GgufKeys):
    """Recipes of a decoder whose layers encode texts, under its own names."""

    def __init__(self, config: DecoderEncoderConfig, architecture: GgufArchitecture) -> None:
        super().__init__(config.decoder, architecture)

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
        """Returns the recipe of a parameter."""
        dense = _DENSE.fullmatch(name)
        if dense is not None:
            return Stored(f"dense_{dense[1]}.weight", shape)
        return super().__call__(name if name.startswith("lm_head.") else f"model.{name}", shape, source)


def encoder_keys(config: Any, architecture: GgufArchitecture) -> Any:
    """Returns the recipes of an encoder's parameters; None where the configuration is of no encoder."""
    if isinstance(config, TextConfig):
        return text_keys
    return DecoderEncoderKeys(config, architecture) if isinstance(config, DecoderEncoderConfig) else None
