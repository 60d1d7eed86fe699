"""RoFormer (Su et al. 2021, arXiv:2104.09864): a BERT with RoPE in place of positions' embeddings."""

from typing import Any, Final

import numpy as np

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Computed, Recipe, RecipeOf, RenamedModules
from transformer_core.layers._rope import inverse_frequencies
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.models.encoders._bert import BERT_NAMES, read_bert, read_post_norm_stack
from transformer_core.models.encoders._bert_kin import PREDICTIONS, bert_head
from transformer_core.models.encoders._roberta import CLASSIFIER_NAMES
from transformer_core.models.encoders._text import TextConfig
from transformer_core.models.encoders._text_families import text_families
from transformer_core.models.encoders._text_heads import ActivatedSequenceClassification

_TABLE: Final = "encoder.rope_table"
_NAMES: Final = {
    **BERT_NAMES,
    **PREDICTIONS,
    "embeddings.project": "embeddings_project",
    f"{_TABLE}": "encoder.embed_positions.weight",
}
_KEYS: Final = RenamedModules(_NAMES, above=("roformer.",))
_CLASSIFIER_KEYS: Final = RenamedModules({**_NAMES, **CLASSIFIER_NAMES}, above=("roformer.",))


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    if fields.boolean("rotary_value", False):
        fields.refuse("rotary_value", "false: RoPE of values is not built")
    hidden, heads = fields.integer("hidden_size", 768), fields.integer("num_attention_heads", 12)
    if hidden % heads or hidden // heads % 2:
        fields.refuse("hidden_size", f"an even multiple of num_attention_heads ({heads}), for RoPE turns pairs")
    positions = fields.integer("max_position_embeddings", 1536)
    rope = RopeConfig(rotated=hidden // heads, trained_length=positions, mode=RopeMode.INTERLEAVED)
    size = fields.integer("embedding_size", hidden) if fields.has("embedding_size") else hidden
    return read_bert(
        fields,
        architecture,
        stack=read_post_norm_stack(fields, rope=rope, rope_rows=positions),
        positions=positions,
        learned_positions=False,
        embedding=None if size == hidden else size,
        **known,
    )


def _stored(keys: RenamedModules, config: TextConfig) -> RecipeOf:
    """Returns recipes under these names; the table of sines is computed if the checkpoint has none."""

    def recipe(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        rope = config.stack.rope
        if name != _TABLE or rope is None or source.has(keys.key(name, source)):
            return keys(name, shape, source)
        angles = np.arange(shape[0], dtype=np.float32)[:, None] * inverse_frequencies(rope)
        table = np.concatenate([np.sin(angles), np.cos(angles)], 1)
        whole = (config.vocabulary, config.embedding or config.stack.hidden)
        beside = keys.key("embeddings.tokens.weight", source)
        return Computed(beside, whole, lambda start, stop: table[start:stop])

    return recipe


ROFORMER: Final = text_families(
    "RoFormer",
    "roformer",
    _read,
    lambda config: _stored(_KEYS, config),
    bert_head,
    (),
    classifier_stored=lambda config: _stored(_CLASSIFIER_KEYS, config),
    classifier=ActivatedSequenceClassification,
    pools=False,
)
