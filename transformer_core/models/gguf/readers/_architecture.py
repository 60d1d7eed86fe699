"""Descriptions of architectures in GGUF files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from lang_core import checked_choices
from transformer_core.checkpoints import Recipe
from transformer_core.models.gguf.readers._common import Source, Values

Made = Callable[[str, tuple[int, ...]], Recipe]
"""Gives the recipe of a layer's parameter, by the layer's prefix in the file and the parameter's shape."""

FUSED_QKV: Final = frozenset({"attn_qkv"})
"""Form of files that have queries, keys and values in one tensor."""

AFTER_PARTS: Final = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""Tensors of layers that norm what attention and feed-forward give."""


@checked_choices
@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """Models of one ``general.architecture``.

    Attributes:
        name: llama.cpp's name of it.
        read: function that returns the fields of config.json.
        reads: fields of ``CHANGING`` that it takes into account.
        permuted: whether rows of queries and keys are stored for INTERLEAVED RoPE.
        names: tensors that are not called as those of a Llama, by the module's path, in a layer by that in the layer.
        tensors: tensors of a layer other than weights or biases of modules, by the parameter's path in the layer.
        made: recipes of a layer's parameters that are stored in another form, by path in the layer.
        numbers: shapes of tensors of one element in every layer that the file has as numbers in its metadata, by the
            field; their keys are ``blk.N.<field>``.
        grouped: path in the layer of the norm of a Mamba-2, stored as a matrix of one row per group; empty without.
        encodes: whether its models encode texts, and do not go on with them.
        forms: tensors of layers that a new file has in place of others that files may have: ``attn_qkv`` in place of
            three projections, ``ffn_up`` in place of gate and up projection, ``attn_k_b`` in place of ``attn_kv_b``,
            ``attn_gate`` in place of gates among the queries.
    """

    name: str
    read: Callable[[Source], Values]
    reads: frozenset[str] = frozenset()
    permuted: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Made] = field(default_factory=dict)
    numbers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    grouped: str = ""
    encodes: bool = False
    forms: frozenset[str] = frozenset()
