"""BERT's kin that differ in few fields: ERNIE, Megatron-BERT, RemBERT, BigBird, RoBERTa-PreLayerNorm, data2vec."""

from dataclasses import replace
from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import activation_of
from transformer_core.models.encoders._bert import BERT_NAMES, read_bert, read_post_norm_stack
from transformer_core.models.encoders._roberta import (
    CLASSIFIER_NAMES,
    HEAD_NAMES,
    MASKED_LM_HEAD,
    positions_after_padding,
)
from transformer_core.models.encoders._text import HeadConfig, TextConfig
from transformer_core.models.encoders._text_families import next_sentence_family, text_families
from transformer_core.models.encoders._text_heads import ActivatedSequenceClassification

PREDICTIONS: Final = {
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "head.bias": "cls.predictions.bias",
}
"""Stored names of the head of BERT's masked language model."""
ALIASES: Final = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
"""Keys under which checkpoints may store the embedding and the bias of that head once more."""
_UNUSED: Final = ("*embeddings.position_ids", "*embeddings.token_type_ids", "cls.seq_relationship.*")
_LAYER: Final = "encoder.layers.{}."
_STORED: Final = "encoder.layer.{}."


def bert_head(fields: ConfigFields) -> HeadConfig:
    """Reads the head of BERT's masked language model."""
    return HeadConfig(activation_of(fields, default="gelu"), aliases=ALIASES)


_BERT: Final = RenamedModules(BERT_NAMES, above=("bert.",))


def _read_ernie(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    tasks = fields.integer("task_type_vocab_size", 3) if fields.boolean("use_task_id", False) else 0
    return read_bert(fields, architecture, tasks=tasks, **known)


_ERNIE: Final = RenamedModules(
    {**BERT_NAMES, **PREDICTIONS, "embeddings.tasks": "embeddings.task_type_embeddings"}, above=("ernie.",)
)


def _read_megatron(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    stack = replace(read_post_norm_stack(fields), post_norm=False)
    return read_bert(fields, architecture, stack=stack, embedding_norm=False, final_norm=True, **known)


_MEGATRON: Final = RenamedModules(
    {
        **BERT_NAMES,
        **PREDICTIONS,
        f"{_LAYER}attention_norm": f"{_STORED}attention.ln",
        f"{_LAYER}mlp_norm": f"{_STORED}ln",
        "norm": "encoder.ln",
    },
    above=("bert.",),
)


def _read_rembert(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    if fields.boolean("tie_word_embeddings", False):
        fields.refuse("tie_word_embeddings", "false: embeddings and output projection have sizes of their own")
    untied = ConfigFields({**fields.values, "tie_word_embeddings": None}, fields.where)
    return read_bert(untied, architecture, embedding=fields.integer("input_embedding_size", 256), **known)


def _rembert_head(fields: ConfigFields) -> HeadConfig:
    size = fields.integer("output_embedding_size", 1664)
    return HeadConfig(activation_of(fields, default="gelu"), size=size)


_REMBERT: Final = RenamedModules(
    {
        **BERT_NAMES,
        "embeddings.project": "encoder.embedding_hidden_mapping_in",
        "head.dense": "cls.predictions.dense",
        "head.norm": "cls.predictions.LayerNorm",
        "head.decoder.weight": "cls.predictions.decoder.weight",
        "head.bias": "cls.predictions.decoder.bias",
    },
    above=("rembert.",),
)


def _read_big_bird(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    stack = replace(
        read_post_norm_stack(fields, activation=activation_of(fields, default="gelu_new")),
        qkv_bias=fields.boolean("use_bias", True),
    )
    positions = fields.integer("max_position_embeddings", 4096)
    if fields.choice("attention_type", ("original_full", "block_sparse"), "block_sparse") == "block_sparse":
        # Shorter texts are attended to as a whole, by transformers too; longer ones by random blocks.
        whole = (5 + 2 * fields.integer("num_random_blocks", 3, minimum=0)) * fields.integer("block_size", 64)
        known = {**known, "longest": min(positions, whole)}
    return read_bert(
        fields,
        architecture,
        stack=stack,
        positions=positions,
        embedding_scale=stack.hidden**0.5 if fields.boolean("rescale_embeddings", False) else 1.0,
        **known,
    )


def _big_bird_head(fields: ConfigFields) -> HeadConfig:
    return HeadConfig(activation_of(fields, default="gelu_new"), aliases=ALIASES)


_BIG_BIRD_NAMES: Final = {**BERT_NAMES, **PREDICTIONS, "pooler": "pooler"}
_BIG_BIRD: Final = RenamedModules(_BIG_BIRD_NAMES, above=("bert.",))
_BIG_BIRD_CLASSIFIER: Final = RenamedModules({**_BIG_BIRD_NAMES, **CLASSIFIER_NAMES}, above=("bert.",))


def _read_roberta(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    padding = positions_after_padding(fields, fields.integer("pad_token_id", 1, minimum=0))
    return read_bert(fields, architecture, **padding, **known)


def _read_pre_norm(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    stack = replace(read_post_norm_stack(fields), post_norm=False)
    return _read_roberta(fields, architecture, stack=stack, final_norm=True, **known)


_PRE_NORM_NAMES: Final = {
    **BERT_NAMES,
    **HEAD_NAMES,
    f"{_LAYER}attention_norm": f"{_STORED}attention.LayerNorm",
    f"{_LAYER}mlp_norm": f"{_STORED}intermediate.LayerNorm",
    "norm": "LayerNorm",
}
_PRE_NORM_ABOVE: Final = ("roberta_prelayernorm.",)
_PRE_NORM: Final = RenamedModules(_PRE_NORM_NAMES, above=_PRE_NORM_ABOVE)
_PRE_NORM_CLASSIFIER: Final = RenamedModules({**_PRE_NORM_NAMES, **CLASSIFIER_NAMES}, above=_PRE_NORM_ABOVE)
_DATA2VEC: Final = RenamedModules({**BERT_NAMES, **HEAD_NAMES}, above=("data2vec_text.",))
_DATA2VEC_CLASSIFIER: Final = RenamedModules(
    {**BERT_NAMES, **HEAD_NAMES, **CLASSIFIER_NAMES}, above=("data2vec_text.",)
)


def _roberta_head(fields: ConfigFields) -> HeadConfig:
    return MASKED_LM_HEAD


_POSITIONS: Final = (_UNUSED[0], _UNUSED[1], "cls.predictions.*")
BERT_KIN: Final = (
    next_sentence_family("Bert", "bert", read_bert, lambda config: _BERT, _POSITIONS),
    next_sentence_family("Ernie", "ernie", _read_ernie, lambda config: _ERNIE, _POSITIONS),
    next_sentence_family("MegatronBert", "megatron-bert", _read_megatron, lambda config: _MEGATRON, _POSITIONS),
    *text_families("Ernie", "ernie", _read_ernie, lambda config: _ERNIE, bert_head, _UNUSED),
    *text_families("MegatronBert", "megatron-bert", _read_megatron, lambda config: _MEGATRON, bert_head, _UNUSED),
    *text_families("RemBert", "rembert", _read_rembert, lambda config: _REMBERT, _rembert_head, _UNUSED),
    *text_families(
        "BigBird",
        "big_bird",
        _read_big_bird,
        lambda config: _BIG_BIRD,
        _big_bird_head,
        _UNUSED,
        classifier_stored=lambda config: _BIG_BIRD_CLASSIFIER,
        classifier=ActivatedSequenceClassification,
    )[:-1],
    *text_families(
        "RobertaPreLayerNorm",
        "roberta-prelayernorm",
        _read_pre_norm,
        lambda config: _PRE_NORM,
        _roberta_head,
        _UNUSED,
        masked="lm_head.*",
        classifier_stored=lambda config: _PRE_NORM_CLASSIFIER,
    ),
    *text_families(
        "Data2VecText",
        "data2vec-text",
        _read_roberta,
        lambda config: _DATA2VEC,
        _roberta_head,
        _UNUSED,
        masked="lm_head.*",
        classifier_stored=lambda config: _DATA2VEC_CLASSIFIER,
    ),
)
