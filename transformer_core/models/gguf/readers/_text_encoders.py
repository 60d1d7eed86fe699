"""Encoders of texts: BERT and its successors, EuroBERT, EmbeddingGemma; their fields of sentences and classes."""

from typing import Any, Final

from lang_core import ConfigError
from transformer_core.models.gguf.readers._architecture import AFTER_PARTS, GgufArchitecture
from transformer_core.models.gguf.readers._common import WINDOW, Source, Values, biases, common, layer_types, vocabulary
from transformer_core.models.gguf.readers._gemma import gemma3_values

_POOLING: Final = "pooling_type"
_MODES: Final = {1: "mean", 2: "cls", 3: "lasttoken"}
_DENSE: Final = ("dense_2.weight", "dense_3.weight")
_OUTPUT: Final = "cls.output.weight"
_DENSE_OF_HEAD: Final = "cls.weight"
_CLASSIFIED: Final = {1: "mean", 2: "cls"}
_IDENTITY: Final = "torch.nn.modules.linear.Identity"
_WANTED: Final = (
    "1 (mean), 2 (first token) or 3 (last token), for encoders are read for their embeddings of sentences, or a "
    "classifier's tensors (cls.output.weight)"
)


def sentence_files(source: Source) -> dict[str, Any]:
    """Returns the files of sentence-transformers beside config.json, by name; none without pooling."""
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


def _head(source: Source, name: str) -> Values:
    """Returns the architecture of an encoder called ``name``: a model of sentences, or a classifier with its labels."""
    file, fields = source
    mode = fields.integer(_POOLING, 0, minimum=0)
    if mode in _MODES:
        return {"architectures": [f"{name}Model"]}
    if not file.has(_OUTPUT):
        fields.refuse(_POOLING, _WANTED)
    if not file.has(_DENSE_OF_HEAD):
        fields.refuse(_POOLING, f"{_WANTED}; a file that ranks needs {_DENSE_OF_HEAD}, which converters leave out of a "
                      "BERT's: take its safetensors")  # fmt: skip
    return {"architectures": [f"{name}ForSequenceClassification"], "id2label": _labels(source)}


def _labels(source: Source) -> dict[str, str]:
    return {str(index): f"LABEL_{index}" for index in range(source.file.spec(_OUTPUT).shape[0])}


def _bert(source: Source) -> Values:
    """Returns the fields of a BERT; positions of a RoBERTa are stored from the first one on, so that it is one."""
    return {
        **_head(source, "Bert"),
        **_sizes(source, "bert"),
        "max_position_embeddings": source.file.spec("position_embd.weight").shape[0],
    }


def _sizes(source: Source, model_type: str) -> Values:
    """Returns the fields that a BERT has, but for its positions."""
    file, fields = source
    return {
        "model_type": model_type,
        "vocab_size": vocabulary(source),
        "hidden_size": fields.integer("embedding_length"),
        "intermediate_size": fields.integer("feed_forward_length"),
        "num_hidden_layers": fields.integer("block_count"),
        "num_attention_heads": fields.integer("attention.head_count"),
        "layer_norm_eps": fields.number("attention.layer_norm_epsilon"),
        "type_vocab_size": file.spec("token_types.weight").shape[0],
        "hidden_act": "gelu",
    }


def _nomic_bert(source: Source) -> Values:
    shared = common(source, "NomicBertModel", "nomic_bert", layer_norm=True)
    return {
        **{name: value for name, value in shared.items() if name != "tie_word_embeddings"},
        **_sentences_only(source, "NomicBertModel"),
        "max_position_embeddings": source.fields.integer("context_length"),
        "type_vocab_size": source.file.spec("token_types.weight").shape[0],
    }


def _nomic_bert_moe(source: Source) -> Values:
    fields = source.fields
    experts = {
        "hidden_act": "gelu",
        "moe_every_n_layers": fields.integer("moe_every_n_layers", minimum=2),
        "num_experts": fields.integer("expert_count"),
        "num_experts_per_tok": fields.integer("expert_used_count"),
    }
    return {**_nomic_bert(source), **experts}


def _jina_v3(source: Source) -> Values:
    base = source.fields.number("rope.freq_base")
    return {
        **_sizes(source, "jina_embeddings_v3"),
        **_sentences_only(source, "JinaEmbeddingsV3Model"),
        "max_position_embeddings": source.fields.integer("context_length"),
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
    }


def _jina_v2(source: Source) -> Values:
    """Returns the fields of Jina embeddings 2, which are a BERT's with ALiBi and gates; not those for code."""
    for part in _CODE_NORMS:
        if source.file.has(f"blk.0.{part}.weight"):
            raise ConfigError(
                f"{source.file.path}: {part} found, expected none: of Jina embeddings 2 those for code have further "
                "norms, which are not supported: take a model for texts"
            )
    return {
        **_sizes(source, "bert"),
        **_sentences_only(source, "BertModel"),
        "feed_forward_type": "geglu",
        "max_position_embeddings": source.fields.integer("context_length"),
        "position_embedding_type": "alibi",
    }


def _modern_bert(source: Source) -> Values:
    """Returns the fields of a ModernBERT; a file says how many tokens a layer with a window sees on both sides."""
    fields = source.fields
    local, base = fields.integer(WINDOW, 0, minimum=0), fields.number("rope.freq_base")
    return {
        **_head(source, "ModernBert"),
        "model_type": "modernbert",
        "vocab_size": vocabulary(source),
        "hidden_size": fields.integer("embedding_length"),
        "intermediate_size": fields.integer("feed_forward_length"),
        "num_hidden_layers": fields.integer("block_count"),
        "num_attention_heads": fields.integer("attention.head_count"),
        "norm_eps": fields.number("attention.layer_norm_epsilon"),
        "max_position_embeddings": fields.integer("context_length"),
        "hidden_activation": fields.values.get("hidden_act", "gelu"),
        "local_attention": local or 1,
        **layer_types(fields, 3 if local else 1, first=True),
        "global_rope_theta": base,
        "local_rope_theta": fields.number("rope.freq_base_swa", base),
        "classifier_pooling": _CLASSIFIED.get(fields.integer("classifier.pooling_type", 1, minimum=0), "mean"),
    }


def _eurobert(source: Source) -> Values:
    return {**common(source, "EuroBertModel", "eurobert"), **_sentences_only(source, "EuroBertModel")}


def _llama_embed(source: Source) -> Values:
    """Returns the fields of a Llama with bidirectional attention, which is a EuroBERT."""
    known = {**_sentences_only(source, "EuroBertModel"), **biases(source)}
    return {**common(source, "EuroBertModel", "eurobert"), **known}


def _sentences_only(source: Source, architecture: str) -> Values:
    if source.fields.integer(_POOLING, 0, minimum=0) not in _MODES:
        source.fields.refuse(_POOLING, _WANTED)
    return {"architectures": [architecture]}


def _gemma_embedding(source: Source) -> Values:
    known = {**_sentences_only(source, "Gemma3TextModel"), "use_bidirectional_attention": True}
    return {**gemma3_values(source), **known, "tie_word_embeddings": True}


_BEFORE: Final = {"attention_norm": "attn_norm", "mlp_norm": "ffn_norm", "norm": "output_norm", "head.dense": "cls"}

_CODE_NORMS: Final = ("attn_q_norm", "attn_k_norm", "attn_norm_2")
_ROUTER: Final = {"mlp.gate": "ffn_gate_inp"}
_EXPERTS: Final = {f"mlp.experts.{part}_proj": f"ffn_{part}_exps.weight" for part in ("up", "down")}

TEXT_ENCODERS: Final = (
    GgufArchitecture("bert", _bert, encodes=True),
    GgufArchitecture("nomic-bert", _nomic_bert, encodes=True),
    GgufArchitecture(
        "nomic-bert-moe", _nomic_bert_moe, frozenset({"expert_count"}), names=_ROUTER, tensors=_EXPERTS, encodes=True
    ),
    GgufArchitecture("jina-bert-v2", _jina_v2, encodes=True),
    GgufArchitecture("jina-bert-v3", _jina_v3, encodes=True),
    GgufArchitecture("modern-bert", _modern_bert, frozenset({WINDOW}), names=_BEFORE, encodes=True),
    GgufArchitecture("eurobert", _eurobert, encodes=True),
    GgufArchitecture("llama-embed", _llama_embed, permuted=True, encodes=True),
    GgufArchitecture("gemma-embedding", _gemma_embedding, frozenset({WINDOW}), names=AFTER_PARTS, encodes=True),
)
