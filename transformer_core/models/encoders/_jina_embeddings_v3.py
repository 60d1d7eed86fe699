"""Jina embeddings 3 (Sturua et al. 2024, arXiv:2409.10173): an XLM-RoBERTa with RoPE in place of learned positions."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._fields import whole_rope
from transformer_core.family._model import ModelFamily
from transformer_core.models.encoders._bert import BERT_NAMES, read_bert, read_post_norm_stack
from transformer_core.models.encoders._fused import FUSED_QKV, with_fused
from transformer_core.models.encoders._roberta import CLASSIFIER_NAMES, HEAD_NAMES, MASKED_LM_HEAD
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._text import TextConfig, TextModel, with_pooling
from transformer_core.models.encoders._text_heads import TextForMaskedLM, TextForSequenceClassification
from transformer_core.models.encoders._token_heads import token_families

_BASE: Final = 20000.0
_LAYER: Final = "encoder.layers.{}."
_NAMES: Final = {
    **{name: stored for name, stored in BERT_NAMES.items() if not name.startswith(_LAYER)},
    "embeddings.norm": "emb_ln",
    f"{_LAYER}self_attn.qkv_proj": f"{_LAYER}mixer.Wqkv",
    f"{_LAYER}self_attn.o_proj": f"{_LAYER}mixer.out_proj",
    f"{_LAYER}attention_norm": f"{_LAYER}norm1",
    f"{_LAYER}mlp.up_proj": f"{_LAYER}mlp.fc1",
    f"{_LAYER}mlp.down_proj": f"{_LAYER}mlp.fc2",
    f"{_LAYER}mlp_norm": f"{_LAYER}norm2",
}
_PREFIX: Final = ("roberta.",)
_KEYS: Final = with_fused(RenamedModules({**_NAMES, **HEAD_NAMES}, above=_PREFIX), FUSED_QKV)
_CLASSIFIER_KEYS: Final = with_fused(RenamedModules({**_NAMES, **CLASSIFIER_NAMES}, above=_PREFIX), FUSED_QKV)


def _read(fields: ConfigFields, architecture: str, **known: Any) -> TextConfig:
    head_size = fields.integer("hidden_size") // fields.integer("num_attention_heads")
    rope = whole_rope(fields, architecture, head_size, default_base=_BASE)
    types = fields.integer("type_vocab_size", 1)
    stack = read_post_norm_stack(fields, rope=rope)
    return read_bert(fields, architecture, stack=stack, types=types, learned_positions=False, **known)


def _family(kind: str, make: Any, keys: Any, ignorable: tuple[str, ...] = (), **known: Any) -> ModelFamily[TextConfig]:
    name, labels = f"JinaEmbeddingsV3{kind}", "Classification" in kind

    def read(fields: ConfigFields) -> TextConfig:
        return _read(fields, name, **known, **({"labels": labels_of(fields)} if labels else {}))

    embedding = with_pooling if make is TextModel else None
    return ModelFamily(
        name,
        "jina_embeddings_v3",
        read,
        make,
        lambda config: keys,
        "*layers.{}",
        ("*inv_freq", *ignorable),
        embedding,
    )


JINA_EMBEDDINGS_V3: Final = (
    _family("Model", TextModel, _KEYS, ("lm_head.*", "*pooler.dense.*"), pooler=True),
    _family("ForMaskedLM", TextForMaskedLM, _KEYS, ("*pooler.dense.*",), head=MASKED_LM_HEAD),
    _family("ForSequenceClassification", TextForSequenceClassification, _CLASSIFIER_KEYS, pooler=True),
    *token_families("JinaEmbeddingsV3", "jina_embeddings_v3", _read, _KEYS, "*layers.{}", ("*inv_freq", "lm_head.*")),
)
