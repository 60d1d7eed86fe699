"""Encoders of texts: BERT and RoBERTa, Nomic-BERT, EmbeddingGemma; what files say of sentences."""

from typing import Any, Final

from transformer_core._config_fields import ConfigFields
from transformer_core.models.gguf.readers._architecture import AFTER_PARTS, GgufArchitecture
from transformer_core.models.gguf.readers._common import WINDOW, Source, Values, common, vocabulary
from transformer_core.models.gguf.readers._gemma import gemma3_values

_POOLING: Final = "pooling_type"
_MODES: Final = {1: "mean", 2: "cls", 3: "lasttoken"}
_DENSE: Final = ("dense_2.weight", "dense_3.weight")
_IDENTITY: Final = "torch.nn.modules.linear.Identity"
_WANTED: Final = "1 (mean), 2 (first token) or 3 (last token), for encoders are read for their embeddings of sentences"


def sentence_files(source: Source) -> dict[str, Any]:
    """Returns what sentence-transformers keeps beside config.json, by the files' names; nothing without pooling."""
    file, fields = source
    mode = _MODES.get(fields.integer(_POOLING, 0, minimum=0))
    if mode is None:
        return {}
    kinds, files = ["Transformer", "Pooling"], {"1_Pooling/config.json": {"pooling_mode": mode}}
    for place, key in enumerate(_DENSE, 2):
        if file.has(key):
            outputs, inputs = file.spec(key).shape
            sizes = {"in_features": inputs, "out_features": outputs, "bias": False, "activation_function": _IDENTITY}
            files[f"{place}_Dense/config.json"] = sizes
            kinds.append("Dense")
    modules = [{"idx": index, "type": f"sentence_transformers.models.{kind}"} for index, kind in enumerate(kinds)]
    normalize = {"idx": len(kinds), "type": "sentence_transformers.models.Normalize"}  # llama.cpp always does
    return {"modules.json": [*modules, normalize], **files}


def _check_pooling(fields: ConfigFields) -> None:
    if fields.integer(_POOLING, 0, minimum=0) not in _MODES:
        fields.refuse(_POOLING, _WANTED)


def _bert(source: Source) -> Values:
    """Returns the fields of a BERT; positions of a RoBERTa are stored from the first one on, so that it is one."""
    file, fields = source
    _check_pooling(fields)
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": vocabulary(source),
        "hidden_size": fields.integer("embedding_length"),
        "intermediate_size": fields.integer("feed_forward_length"),
        "num_hidden_layers": fields.integer("block_count"),
        "num_attention_heads": fields.integer("attention.head_count"),
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon"),
        "max_position_embeddings": file.spec("position_embd.weight").shape[0],
        "type_vocab_size": file.spec("token_types.weight").shape[0],
        "hidden_act": "gelu",
    }


def _nomic_bert(source: Source) -> Values:
    _check_pooling(source.fields)
    shared = common(source, "NomicBertModel", "nomic_bert", layer_norm=True)
    return {
        **{name: value for name, value in shared.items() if name != "tie_word_embeddings"},
        "max_position_embeddings": source.fields.integer("context_length"),
        "type_vocab_size": source.file.spec("token_types.weight").shape[0],
    }


def _gemma_embedding(source: Source) -> Values:
    _check_pooling(source.fields)
    known = {"architectures": ["Gemma3TextModel"], "use_bidirectional_attention": True}
    return {**gemma3_values(source), **known, "tie_word_embeddings": True}


TEXT_ENCODERS: Final = (
    GgufArchitecture("bert", _bert, encodes=True),
    GgufArchitecture("nomic-bert", _nomic_bert, encodes=True),
    GgufArchitecture("gemma-embedding", _gemma_embedding, frozenset({WINDOW}), names=AFTER_PARTS, encodes=True),
)
