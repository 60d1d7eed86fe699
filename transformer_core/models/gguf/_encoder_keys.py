"""Tensors of a GGUF file that encoders of texts are made of."""

import re
from typing import Any, Final

from lang_core import WeightSource
from transformer_core.checkpoints import Cut, Recipe, RenamedModules, Stored
from transformer_core.models.encoders import DecoderEncoderConfig, T5Config, TextConfig
from transformer_core.models.gguf._keys import GgufKeys
from transformer_core.models.gguf._recipes import Difference
from transformer_core.models.gguf.readers import GgufArchitecture

_WHOLE: Final = {
    "embeddings.tokens": "token_embd",
    "embeddings.positions": "position_embd",
    "embeddings.types": "token_types",
    "embeddings.norm": "token_embd_norm",
    "pooler": "cls",
    "head.norm": "cls.norm",
    "classifier": "cls.output",
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
_GATE_UP: Final = ("ffn_gate", "ffn_up")
_LAYER: Final = re.compile(r"encoder\.layers\.(\d+)\.(.+)")
_SCORE: Final = "score.weight"
_DENSE: Final = re.compile(r"sentence\.dense\.(\d+)\.weight")


class TextKeys:
    """Recipes of the parameters of a ``TextModel``; a ``RecipeOf``."""

    def __init__(self, config: TextConfig, architecture: GgufArchitecture) -> None:
        self._whole: Final = {**_WHOLE, **architecture.names}
        self._names: Final = {**_IN_LAYERS, **architecture.names}
        self._tensors: Final = architecture.tensors
        self._gated: Final = config.stack.gated_mlp

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
        """Returns the recipe of a parameter."""
        match = _LAYER.fullmatch(name)
        module, _, kind = (name if match is None else match[2]).rpartition(".")
        if match is None:
            return Stored(f"{self._whole.get(module, module)}.{kind}", shape)
        if match[2] in self._tensors:
            return Stored(f"blk.{match[1]}.{self._tensors[match[2]]}", shape)
        part, above = self._names.get(module, module), f"blk.{match[1]}"
        return _cut(above, part, _QKV, "attn_qkv", kind, shape, source) or (
            _cut(above, part, _GATE_UP, "ffn_up", kind, shape, source) if self._gated else None
        ) or Stored(f"{above}.{part}.{kind}", shape)  # fmt: skip


def _cut(
    above: str, part: str, parts: tuple[str, ...], whole: str, kind: str, shape: tuple[int, ...], source: WeightSource
) -> Recipe | None:
    """Returns the recipe of one of ``parts`` of a projection that the file has fused; None if it has not."""
    if part not in parts or source.has(f"{above}.{parts[0]}.{kind}") or not source.has(f"{above}.{whole}.{kind}"):
        return None
    start = parts.index(part) * shape[0]
    return Cut(f"{above}.{whole}.{kind}", (len(parts) * shape[0], *shape[1:]), 0, start, start + shape[0])


class DecoderEncoderKeys(GgufKeys):
    """Recipes of a decoder that encodes texts, under its own names."""

    def __init__(self, config: DecoderEncoderConfig, architecture: GgufArchitecture) -> None:
        super().__init__(config.decoder, architecture)

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
        """Returns the recipe of a parameter."""
        dense = _DENSE.fullmatch(name)
        if dense is not None:
            return Stored(f"dense_{dense[1]}.weight", shape)
        if name == _SCORE:
            return Difference("cls.output.weight", shape)
        return super().__call__(name if name.startswith("lm_head.") else f"model.{name}", shape, source)


def _attention(ours: str, stored: str) -> dict[str, str]:
    return {f"{ours}.{part}_proj": f"{stored}_{part}" for part in "qkvo"}


def _feed_forward(ours: str, stored: str) -> dict[str, str]:
    return {f"{ours}.mlp_norm": f"{stored}.ffn_norm"} | {
        f"{ours}.mlp.{part}_proj": f"{stored}.ffn_{part}" for part in ("gate", "up", "down")
    }


_ENCODER: Final = "encoder.stack.layers.{}"
_DECODER: Final = "decoder.layers.{}"
_T5_KEYS: Final = RenamedModules(
    {
        "shared": "token_embd",
        "lm_head": "output",
        "encoder.relative.shared": "enc.blk.0.attn_rel_b",
        "decoder.relative.shared": "dec.blk.0.attn_rel_b",
        "encoder.norm": "enc.output_norm",
        "decoder.norm": "dec.output_norm",
        "sentence.dense.{}": "dense_{}",
        f"{_ENCODER}.attention_norm": "enc.blk.{}.attn_norm",
        f"{_DECODER}.attention_norm": "dec.blk.{}.attn_norm",
        f"{_DECODER}.cross_norm": "dec.blk.{}.cross_attn_norm",
        **_attention(f"{_ENCODER}.self_attn", "enc.blk.{}.attn"),
        **_attention(f"{_DECODER}.self_attn", "dec.blk.{}.attn"),
        **_attention(f"{_DECODER}.cross_attn", "dec.blk.{}.cross_attn"),
        **_feed_forward(_ENCODER, "enc.blk.{}"),
        **_feed_forward(_DECODER, "dec.blk.{}"),
    }
)


def encoder_keys(config: Any, architecture: GgufArchitecture) -> Any:
    """Returns the recipes of an encoder's parameters; None if the configuration is not of an encoder."""
    if isinstance(config, TextConfig):
        return TextKeys(config, architecture)
    if isinstance(config, T5Config):
        return _T5_KEYS
    return DecoderEncoderKeys(config, architecture) if isinstance(config, DecoderEncoderConfig) else None
