"""Tensors of a GGUF file that a decoder's parameters are made of."""

import re
from typing import Final

from lang_core import WeightSource
from transformer_core.checkpoints import Cut, Paired, Recipe, Reshaped, Stacked, Stored
from transformer_core.layers._rope_config import RopeMode
from transformer_core.models import DecoderConfig, Mamba2Config
from transformer_core.models.gguf._recipes import JoinedHeads, LessOne, OneOf, SplitHalves
from transformer_core.models.gguf.readers import GgufArchitecture

_WHOLE: Final = {
    "model.embed_tokens": "token_embd",
    "model.embed_positions": "position_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
_IN_LAYERS: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}
_QUERIES: Final = "self_attn.q_proj.weight"
_FIRST_NORM: Final = "input_layernorm"
_PLAIN_NORM: Final = "linear_attn.norm.weight"  # of a Gated DeltaNet: it adds nothing
_CORRECTION: Final = "mlp.gate.e_score_correction_bias"
_SHARED_GATE: Final = "mlp.shared_expert_gate.weight"
_EXPERTS: Final = {
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
_EXPERTS_ALONE: Final = {path.removeprefix("mlp."): key for path, key in _EXPERTS.items()}
_GATE_UP_EXPERTS: Final = ("gate_proj", "up_proj")
_COPY: Final = re.compile(r"model\.(altup_projections|altup_unembed_projections)\.(\d+)\.weight")
_COPIES: Final = {
    "altup_projections": "altup_proj.weight",
    "altup_unembed_projections": "altup_unembd_proj.weight",
}
_QKV: Final = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_TURNED: Final = ("q_proj", "k_proj")
_GATE_UP: Final = ("mlp.gate_proj", "mlp.up_proj")
_HEAD: Final = {
    "mtp.fc": "eh_proj",
    "mtp.pre_fc_norm_embedding": "enorm",
    "mtp.pre_fc_norm_hidden": "hnorm",
    "mtp.norm": "shared_head_norm",
}
_HEADS_LAYER: Final = "mtp.layers.0."
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.+)")


class GgufKeys:
    """Recipes of a decoder's parameters; a ``RecipeOf``.

    Args:
        config: configuration of the decoder.
        architecture: the file's; rows of queries and keys that are stored for INTERLEAVED RoPE are brought into the
            layout of the configuration.
    """

    def __init__(self, config: DecoderConfig, architecture: GgufArchitecture) -> None:
        self.config: Final = config
        self._turned: Final = architecture.permuted and config.rope.mode is RopeMode.SPLIT_HALF
        self._names: Final = {**_IN_LAYERS, **architecture.names}
        self._whole: Final = {**_WHOLE, **architecture.names}
        self._tensors: Final = architecture.tensors
        self._architecture: Final = architecture

    def _fused(self, layer: int, module: str) -> tuple[str, tuple[int, ...], int] | None:
        """Returns the tensor that a projection may be a part of, its parts' rows and the number of the part."""
        sizes = self.config.sizes_of(min(layer, self.config.layers - 1))
        if module in _QKV:
            q, kv = ((heads or self.config.heads) * sizes.head_size for heads in (sizes.heads, sizes.kv_heads))
            return "attn_qkv", (q, kv, kv), _QKV.index(module)
        if module in _GATE_UP and self.config.gated_mlp:
            return "ffn_up", (sizes.intermediate,) * 2, _GATE_UP.index(module)
        return None

    def __call__(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
        """Returns the recipe of a parameter."""
        match = _LAYER.fullmatch(name)
        if match is None:
            return self._outside(name, shape, source)
        layer, path = match[1], match[2]
        if path in self._tensors:
            return Stored(f"blk.{layer}.{self._tensors[path]}", shape)
        if path in self._architecture.made:
            return self._architecture.made[path](f"blk.{layer}", shape)
        if path == f"{self._architecture.grouped}.weight" and isinstance(self.config.mixer, Mamba2Config):
            groups = self.config.mixer.sizes.groups
            return Reshaped(f"blk.{layer}.ssm_norm.weight", (groups, shape[0] // groups), shape)
        if path == _QUERIES and self.config.gated and source.has(f"blk.{layer}.attn_gate.weight"):
            keys = f"blk.{layer}.attn_q.weight", f"blk.{layer}.attn_gate.weight"
            return Paired(*keys, shape, self.config.heads)
        if path == "self_attn.sinks":
            return Stored(f"blk.{layer}.attn_sinks.weight", shape)
        if path.removesuffix("_bias") in _EXPERTS and path.endswith("_bias"):
            return Stored(f"blk.{layer}.{_EXPERTS[path.removesuffix('_bias')]}.bias", shape)
        if path in _EXPERTS:
            return _experts(f"blk.{layer}.{_EXPERTS[path]}", shape, source)
        if path in _EXPERTS_ALONE:
            return _fused_experts(layer, path, shape, source)
        if path == _CORRECTION:
            return _vector(f"blk.{layer}.exp_probs_b.bias", shape, source)
        module, _, kind = path.rpartition(".")
        key = f"blk.{layer}.{self._names.get(module, module)}.{kind}"
        if module == _FIRST_NORM and self.config.parallel and source.has(f"blk.{layer}.attn_norm_2.{kind}"):
            key = f"blk.{layer}.attn_norm_2.{kind}"
        fused = self._fused(int(layer), module)
        if fused is not None and (cut := _cut(f"blk.{layer}", fused, kind, shape, source)) is not None:
            return cut
        if module == "self_attn.kv_b_proj" and self.config.latent is not None and not source.has(key):
            keys, values = f"blk.{layer}.attn_k_b.weight", f"blk.{layer}.attn_v_b.weight"
            return JoinedHeads(keys, values, shape, self.config.heads, self.config.latent.plain_size)
        turned = module.rpartition(".")[2]
        if self._turned and turned in _TURNED:
            heads = self.config.heads if turned == _TURNED[0] else self.config.kv_heads
            return SplitHalves(key, shape, heads)
        if path == _SHARED_GATE and len(source.spec(key).shape) == 1:
            return Reshaped(key, shape[1:], shape)
        return self.stored(key, shape, name)

    def _outside(self, name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
        """Returns the recipe of a parameter outside of the layers; a prediction head's layer follows the last."""
        if name.startswith(_HEADS_LAYER):
            return self(f"model.layers.{self.config.layers}.{name.removeprefix(_HEADS_LAYER)}", shape, source)
        match = _COPY.fullmatch(name)
        if match is not None and self.config.altup is not None:
            return OneOf(_COPIES[match[1]], shape, self.config.altup.copies - 1, int(match[2]))
        module, _, kind = name.rpartition(".")
        if module in _HEAD:
            stored = f"{_HEAD[module]}.{kind}"
            return self.stored(f"blk.{self.config.layers}.nextn.{stored}", shape, stored)
        return self.stored(f"{self._whole.get(module, module)}.{kind}", shape, name)

    def stored(self, key: str, shape: tuple[int, ...], name: str) -> Recipe:
        """Returns the recipe of a stored parameter; of norms that add 1 to their weights the file has the sum."""
        sums = self.config.zero_centred and name.endswith("norm.weight") and not name.endswith(_PLAIN_NORM)
        return LessOne(key, shape) if sums else Stored(key, shape)


def _vector(key: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
    """Returns the recipe of a vector, which some files store as a matrix of one row."""
    row = source.has(key) and len(source.spec(key).shape) > len(shape)
    return Reshaped(key, (1, *shape), shape) if row else Stored(key, shape)


def _experts(key: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
    """Returns the recipe of all experts of a projection: one tensor, or one each, as in files of early 2024."""
    alone = key.removesuffix("_exps")
    if source.has(f"{alone}.0.weight") and not source.has(f"{key}.weight"):
        return Stacked([f"{alone}.{expert}.weight" for expert in range(shape[0])], shape[1:])
    return Stored(f"{key}.weight", shape)


def _fused_experts(layer: str, path: str, shape: tuple[int, ...], source: WeightSource) -> Recipe:
    """Returns the recipe of all experts of a projection, of which gates and up projections may be one tensor."""
    whole, part = f"blk.{layer}.ffn_gate_up_exps.weight", path.removeprefix("experts.")
    if part not in _GATE_UP_EXPERTS or not source.has(whole):
        return Stored(f"blk.{layer}.{_EXPERTS_ALONE[path]}.weight", shape)
    experts, inner, size = shape
    start = _GATE_UP_EXPERTS.index(part) * inner
    return Cut(whole, (experts, 2 * inner, size), 1, start, start + inner)


def _cut(
    layer: str, fused: tuple[str, tuple[int, ...], int], kind: str, shape: tuple[int, ...], source: WeightSource
) -> Recipe | None:
    """Returns the recipe of a part of a projection that the file has fused; None if it has not."""
    whole, sizes, index = fused
    alone = {"attn_qkv": "attn_q", "ffn_up": "ffn_gate"}[whole]
    if source.has(f"{layer}.{alone}.weight") or not source.has(f"{layer}.{whole}.weight"):
        return None
    start = sum(sizes[:index])
    return Cut(f"{layer}.{whole}.{kind}", (sum(sizes), *shape[1:]), 0, start, start + sizes[index])
