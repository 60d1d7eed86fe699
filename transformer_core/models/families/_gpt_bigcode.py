"""GPT-BigCode (StarCoder, arXiv:2305.06161, and SantaCoder): a GPT-2 with one head of keys and values."""

from typing import Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Interleaved, Recipe, RecipeOf, Stored
from transformer_core.family._config import DecoderConfig, Family
from transformer_core.family._layer import DecoderLayer
from transformer_core.models.families._gpt2 import PARTS, STORED, gpt2_kind

_OF_THE_BODY_ALONE: Final = ("wte.weight", "wpe.weight")  # keys of a file that was saved without the head


def _read(fields: ConfigFields) -> DecoderConfig:
    kv_heads = 1 if fields.boolean("multi_query", True) else fields.integer("n_head")
    return gpt2_kind(fields, GPT_BIGCODE.architecture, kv_heads=kv_heads)


def _stored(config: DecoderConfig) -> RecipeOf:
    """Returns recipes under GPT-2's names; matrices are ``[out, in]``.

    With multi-query attention, ``c_attn`` holds all queries, then the one key head and the one value head. Without it,
    each head's query, key and value are stored side by side.
    """
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    ends = (0, queries, queries + keys, queries + 2 * keys)

    def recipe_of(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name == "lm_head.weight":
            return None
        above = "" if any(map(source.has, _OF_THE_BODY_ALONE)) else "transformer."
        module, _, kind = name.rpartition(".")
        if module in STORED:
            return Stored(f"{above}{STORED[module]}.{kind}", shape)
        _, _, layer, part = module.split(".", 3)
        if part not in PARTS:
            return Stored(f"{above}h.{layer}.{STORED[part]}.{kind}", shape)
        key, index = f"{above}h.{layer}.attn.c_attn.{kind}", PARTS.index(part)
        whole = (ends[-1], *shape[1:])
        if config.kv_heads == 1:
            return Cut(key, whole, 0, ends[index], ends[index + 1])
        return Interleaved(key, whole, config.heads, 3, index)

    return recipe_of


GPT_BIGCODE: Final = Family("GPTBigCodeForCausalLM", "gpt_bigcode", _read, DecoderLayer, _stored, "*h.{}")
