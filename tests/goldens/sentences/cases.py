"""Tiny models of sentence-transformers in many layouts: their files, and the texts that goldens were made of."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy

from tests.goldens.encoders.files import random_encoder_weights
from tests.goldens.sentences.tokenizers_of_cases import TOKENIZER_CONFIGS, TOKENIZERS

DATA: Final = Path(__file__).parent / "data"
Shapes = Mapping[str, Mapping[str, tuple[int, ...]]]
"""Shapes of the tensors of each model.safetensors, by its directory and key."""

TEXTS: Final = (
    "Berlin is big",
    "",
    " ",
    "\n\t ",
    "  berlin Is BIG \n",
    "the cat on the mat",
    "The Cat On The Mat.",
    "café CAFÉ cafe\u0301",
    "ŻÓŁĆ İstanbul ß ﬁ ½",
    "日本語 の テキスト",
    "жи Ши ñandú",
    "emoji 🙂👩‍👩‍👧 end",
    "[MASK] [mask] </s> <pad> <|end|>",
    "a",
    "A",
    "is berlin big?\nis it?",
    "tabs\tand  double  spaces",
    "zero\u200bwidth\u00a0nbsp",
    "berlin is big " * 40,
    "Q" * 3 + " " + "the mat is on a cat " * 7,
)
"""Texts of the goldens."""

PAIRS: Final = (
    ("", ""),
    ("berlin", "Berlin is big"),
    ("Is Berlin big?", "the cat on the mat " * 9),
    ("the cat on the mat " * 9, "berlin"),
    ("berlin is a big " * 8, "the cat on the mat " * 9),
    ("ñ é", " "),
)
"""Queries and documents of the goldens of rerankers."""


@dataclass(frozen=True)
class SentenceCase:
    """Tiny random model of sentence-transformers.

    Attributes:
        name: its name.
        twist: what it covers that the others do not.
        config: ``config.json``.
        tokenizer: name of its tokenizer.
        files: other JSON files, by their paths.
        folder: directory of the model.
        tokenizer_config: further fields of ``tokenizer_config.json``.
        prompt: name of the prompt that texts are embedded with; None for the default.
        ranks: whether it scores pairs of texts.
        seed: of the weights.
    """

    name: str
    twist: str
    config: Mapping[str, Any]
    tokenizer: str
    files: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    prompt: str | None = None
    ranks: bool = False
    seed: int = 1

    def digest(self) -> str:
        """SHA-256 of everything that the goldens depend on."""
        facts = [self.config, self.tokenizer, self.files, self.folder, self.tokenizer_config, self.prompt, self.seed]
        facts += [TOKENIZERS[self.tokenizer]().to_str(), TEXTS, PAIRS]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def module_shapes(case: SentenceCase) -> dict[str, dict[str, tuple[int, ...]]]:
    """Shapes of the weights of the modules after the pooling, by directory."""
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}
    for path, values in case.files.items():
        folder = path.rpartition("/")[0]
        if "dimension" in values:
            shapes[folder] = {"norm.weight": (values["dimension"],), "norm.bias": (values["dimension"],)}
        if "in_features" in values:
            inputs, outputs = values["in_features"], values["out_features"]
            tensors: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, inputs)}
            if values.get("bias", True):
                tensors["linear.bias"] = (outputs,)
            if values.get("use_residual") and inputs != outputs:
                tensors["residual.weight"] = (outputs, inputs)
            shapes[folder] = tensors
    return shapes


def write_files(directory: Path, case: SentenceCase) -> None:
    """Writes every file of a case but the weights."""
    folder = directory / case.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(case.config)))
    TOKENIZERS[case.tokenizer]().save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **TOKENIZER_CONFIGS[case.tokenizer]}
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, **case.tokenizer_config}))
    for path, values in case.files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(json.dumps(values))


def write_weights(directory: Path, case: SentenceCase, shapes: Shapes) -> None:
    """Writes the weights of a case."""
    for folder, tensors in shapes.items():
        keyed = {f"{folder}/{key}": tuple(shape) for key, shape in tensors.items()}
        drawn = random_encoder_weights(keyed, case.seed)
        weights = {key.removeprefix(f"{folder}/"): np.ascontiguousarray(array) for key, array in drawn.items()}
        (directory / folder).mkdir(parents=True, exist_ok=True)
        safetensors.numpy.save_file(weights, directory / folder / "model.safetensors", metadata={"format": "pt"})


def read_goldens() -> dict[str, Any]:
    """Versions, and per case its digest, the shapes of its weights and the ids of the texts."""
    return json.loads((DATA / "sentences.json").read_text(encoding="utf-8"))


def read_vectors(name: str) -> np.ndarray:
    """Vectors f32 [texts, D] of a case, or scores f32 [pairs]."""
    with np.load(DATA / "vectors.npz", allow_pickle=False) as file:
        return file[name]


def write_sentence_model(directory: Path, case: SentenceCase) -> None:
    """Writes the model of a case as sentence-transformers and transformers do."""
    write_files(directory, case)
    write_weights(directory, case, read_goldens()["cases"][case.name]["shapes"])


_OLD: Final = "sentence_transformers.models"
_NEW: Final = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "LayerNorm": "sentence_transformers.sentence_transformer.modules.layer_norm.LayerNorm",
    "Dropout": "sentence_transformers.sentence_transformer.modules.dropout.Dropout",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


def _modules(*kinds: str, paths: Mapping[int, str] | None = None, new: bool = False) -> list[dict[str, Any]]:
    own = ["" if place == 0 else f"{place}_{kind}" for place, kind in enumerate(kinds)]
    return [
        {
            "idx": place,
            "name": str(place),
            "path": (paths or {}).get(place, own[place]),
            "type": _NEW[kind] if new else f"{_OLD}.{kind}",
        }
        for place, kind in enumerate(kinds)
    ]


_BERT: Final = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 190,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}
_ROBERTA: Final = {
    **_BERT,
    "architectures": ["RobertaModel"],
    "model_type": "roberta",
    "vocab_size": 280,
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_MPNET: Final = {
    **{name: value for name, value in _BERT.items() if name != "type_vocab_size"},
    "architectures": ["MPNetForMaskedLM"],
    "model_type": "mpnet",
    "relative_attention_num_buckets": 32,
    "pad_token_id": 1,
}
_DISTILBERT: Final = {
    "architectures": ["DistilBertModel"],
    "model_type": "distilbert",
    "vocab_size": 190,
    "dim": 12,
    "hidden_dim": 20,
    "n_heads": 3,
    "n_layers": 2,
    "max_position_embeddings": 40,
    "activation": "gelu",
    "pad_token_id": 0,
}
_T5: Final = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "vocab_size": 130,
    "d_model": 12,
    "d_kv": 4,
    "d_ff": 20,
    "num_heads": 3,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "feed_forward_proj": "gated-gelu",
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
_QWEN: Final = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 280,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
_MODERNBERT: Final = {
    "architectures": ["ModernBertForMaskedLM"],
    "model_type": "modernbert",
    "vocab_size": 190,
    "hidden_size": 12,
    "intermediate_size": 20,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "max_position_embeddings": 64,
    "local_attention": 8,
    "pad_token_id": 0,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "bos_token_id": 2,
    "eos_token_id": 3,
}


def _pooling(size: int = 12, **flags: Any) -> dict[str, Any]:
    return {"word_embedding_dimension": size, **flags}


_MEAN: Final = _pooling(pooling_mode_cls_token=False, pooling_mode_mean_tokens=True)

_CASES: Final = (
    SentenceCase(
        "minilm",
        "BERT, mean and Normalize, max_seq_length of its own",
        _BERT,
        "bert",
        {
            "modules.json": _modules("Transformer", "Pooling", "Normalize"),
            "1_Pooling/config.json": _MEAN,
            "sentence_bert_config.json": {"max_seq_length": 16, "do_lower_case": False},
        },
    ),
    SentenceCase(
        "mpnet_masked_lm",
        "architectures name a masked language model, as in all-mpnet-base-v2",
        _MPNET,
        "bert",
        {
            "modules.json": _modules("Transformer", "Pooling", "Normalize"),
            "1_Pooling/config.json": _MEAN,
            "sentence_bert_config.json": {"max_seq_length": 24, "do_lower_case": False},
        },
        seed=2,
    ),
    SentenceCase(
        "lower_case",
        "do_lower_case with a tokenizer that keeps case; the length of the tokenizer",
        _BERT,
        "bert_cased",
        {
            "modules.json": _modules("Transformer", "Pooling"),
            "1_Pooling/config.json": _pooling(pooling_mode_cls_token=True),
            "sentence_bert_config.json": {"max_seq_length": None, "do_lower_case": True},
        },
        tokenizer_config={"model_max_length": 20},
        seed=3,
    ),
    SentenceCase(
        "old_layout",
        "0_Transformer with sentence_roberta_config.json; positions behind padding's id",
        _ROBERTA,
        "roberta",
        {
            "modules.json": _modules("Transformer", "Pooling", paths={0: "0_Transformer"}),
            "1_Pooling/config.json": _pooling(pooling_mode_mean_tokens=False, pooling_mode_max_tokens=True),
            "0_Transformer/sentence_roberta_config.json": {"max_seq_length": 18},
            "config_sentence_transformers.json": {"prompts": {"q": "query: "}, "similarity_fn_name": "dot"},
        },
        folder="0_Transformer",
        prompt="q",
        seed=4,
    ),
    SentenceCase(
        "roberta_positions",
        "no max_seq_length: the tokenizer's length, two less than the rows of the position table",
        {**_ROBERTA, "architectures": ["RobertaForMaskedLM"]},
        "roberta",
        {
            "modules.json": _modules("Transformer", "Pooling"),
            "1_Pooling/config.json": _pooling(pooling_mode_cls_token=True),
        },
        tokenizer_config={"model_max_length": 38},
        seed=5,
    ),
    SentenceCase(
        "all_modes",
        "every pooling at once in the new form, then Dense with GELU, LayerNorm, Dropout and Normalize",
        {**_BERT, "architectures": ["BertForPreTraining"]},
        "bert",
        {
            "modules.json": _modules("Transformer", "Pooling", "Dense", "LayerNorm", "Dropout", "Normalize", new=True),
            "1_Pooling/config.json": {
                "embedding_dimension": 12,
                "pooling_mode": ["lasttoken", "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean"],
                "include_prompt": True,
            },
            "2_Dense/config.json": {
                "in_features": 72,
                "out_features": 10,
                "bias": True,
                "activation_function": "torch.nn.modules.activation.GELU",
                "module_input_name": "sentence_embedding",
                "module_output_name": "sentence_embedding",
            },
            "3_LayerNorm/config.json": {"dimension": 10},
            "4_Dropout/config.json": {"dropout": 0.5},
            "5_Normalize/config.json": {
                "module_input_name": "sentence_embedding",
                "module_output_name": "sentence_embedding",
            },
            "sentence_bert_config.json": {
                "transformer_task": "feature-extraction",
                "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
                "module_output_name": "token_embeddings",
            },
            "config_sentence_transformers.json": {
                "model_type": "SentenceTransformer",
                "prompts": {"query": "query: ", "document": ""},
                "default_prompt_name": "query",
                "similarity_fn_name": "euclidean",
            },
        },
        tokenizer_config={"model_max_length": 22},
        seed=6,
    ),
    SentenceCase(
        "old_flags",
        "several old flags of the pooling, joined in sentence-transformers' order",
        {**_BERT, "architectures": ["BertForSequenceClassification"]},
        "bert",
        {
            "modules.json": _modules("Transformer", "Pooling"),
            "1_Pooling/config.json": _pooling(
                pooling_mode_mean_tokens=True,
                pooling_mode_cls_token=True,
                pooling_mode_weightedmean_tokens=True,
                pooling_mode_mean_sqrt_len_tokens=True,
            ),
        },
        seed=7,
    ),
    SentenceCase(
        "distiluse",
        "a DistilBERT, whose tokenizer keeps case, and a matrix with a tanh, as in distiluse-base-multilingual-cased",
        _DISTILBERT,
        "bert_cased",
        {
            "modules.json": _modules("Transformer", "Pooling", "Dense"),
            "1_Pooling/config.json": _MEAN,
            "2_Dense/config.json": {
                "in_features": 12,
                "out_features": 8,
                "bias": True,
                "activation_function": "torch.nn.modules.activation.Tanh",
            },
            "sentence_distilbert_config.json": {"max_seq_length": 18},
        },
        seed=31,
    ),
    SentenceCase(
        "gtr",
        "T5's encoder of a whole T5, a matrix without bias and activation",
        _T5,
        "t5",
        {
            "modules.json": _modules("Transformer", "Pooling", "Dense", "Normalize"),
            "1_Pooling/config.json": _MEAN,
            "2_Dense/config.json": {
                "in_features": 12,
                "out_features": 8,
                "bias": False,
                "activation_function": "torch.nn.modules.linear.Identity",
            },
            "sentence_bert_config.json": {"max_seq_length": 28, "do_lower_case": False},
        },
        seed=8,
    ),
    SentenceCase(
        "instructor",
        "the prompt's tokens are not pooled: mean, cls, weighted mean",
        {**_T5, "architectures": ["T5EncoderModel"]},
        "t5",
        {
            "modules.json": _modules("Transformer", "Pooling", "Normalize"),
            "1_Pooling/config.json": {
                "embedding_dimension": 12,
                "pooling_mode": ["mean", "cls", "weightedmean", "lasttoken"],
                "include_prompt": False,
            },
            "sentence_bert_config.json": {"max_seq_length": 28},
            "config_sentence_transformers.json": {
                "prompts": {"query": "query: a cat is ", "none": ""},
                "default_prompt_name": "query",
            },
        },
        seed=9,
    ),
    SentenceCase(
        "bert_without_prompt",
        "the prompt's tokens are not pooled, [CLS] among them: max and the square root",
        _BERT,
        "bert",
        {
            "modules.json": _modules("Transformer", "Pooling"),
            "1_Pooling/config.json": {
                "embedding_dimension": 12,
                "pooling_mode": ["max", "mean_sqrt_len_tokens"],
                "include_prompt": False,
            },
            "sentence_bert_config.json": {"max_seq_length": 15},
            "config_sentence_transformers.json": {"prompts": {"q": "berlin is: "}},
        },
        prompt="q",
        seed=10,
    ),
    SentenceCase(
        "qwen3",
        "a language model: the last token, which the tokenizer adds, also after truncation; a prompt",
        _QWEN,
        "qwen",
        {
            "modules.json": _modules("Transformer", "Pooling", "Normalize"),
            "1_Pooling/config.json": _pooling(pooling_mode_lasttoken=True, include_prompt=True),
            "config_sentence_transformers.json": {
                "prompts": {"query": "Instruct: find\nQuery:", "document": ""},
                "default_prompt_name": None,
                "similarity_fn_name": "cosine",
            },
        },
        tokenizer_config={"model_max_length": 131072},
        prompt="query",
        seed=11,
    ),
    SentenceCase(
        "odd_paths",
        "modules in directories of other names; a residual, Normalize in the middle, Sigmoid",
        _BERT,
        "bert",
        {
            "modules.json": _modules(
                "Transformer",
                "Pooling",
                "Dense",
                "Normalize",
                "Dense",
                "Dense",
                paths={1: "pool", 2: "projections/first", 3: "", 4: "second", 5: "third/"},
            ),
            "pool/config.json": _MEAN,
            "projections/first/config.json": {
                "in_features": 12,
                "out_features": 9,
                "bias": True,
                "activation_function": "torch.nn.modules.activation.SiLU",
                "use_residual": True,
            },
            "second/config.json": {"in_features": 9, "out_features": 9, "use_residual": True},
            "third/config.json": {
                "in_features": 9,
                "out_features": 6,
                "activation_function": "torch.nn.modules.activation.Sigmoid",
            },
        },
        seed=12,
    ),
    SentenceCase(
        "left",
        "the beginning of long texts is cut off; an old field of the tokenizer's settings",
        _BERT,
        "bert",
        {
            "modules.json": _modules("Transformer", "Pooling"),
            "1_Pooling/config.json": _MEAN,
            "sentence_bert_config.json": {"max_seq_length": 30, "tokenizer_args": {"model_max_length": 11}},
        },
        tokenizer_config={"truncation_side": "left"},
        seed=13,
    ),
    SentenceCase(
        "modernbert",
        "ModernBERT with the head of a masked language model; positions bound the length",
        _MODERNBERT,
        "bert_cased",
        {
            "modules.json": _modules("Transformer", "Pooling", "Normalize", new=True),
            "1_Pooling/config.json": {"embedding_dimension": 12, "pooling_mode": "cls"},
        },
        seed=14,
    ),
    SentenceCase(
        "xlmr",
        "XLM-RoBERTa whose tokenizer sees spaces at the ends, with do_lower_case",
        {**_ROBERTA, "architectures": ["XLMRobertaForMaskedLM"], "model_type": "xlm-roberta", "vocab_size": 130},
        "xlmr",
        {
            "modules.json": _modules("Transformer", "Pooling"),
            "1_Pooling/config.json": _MEAN,
            "sentence_xlm-roberta_config.json": {"max_seq_length": 32, "do_lower_case": True},
        },
        seed=15,
    ),
    SentenceCase(
        "rerank_old",
        "a cross-encoder of an old version: its length is the tokenizer's, and its activation in config.json",
        {
            **_BERT,
            "architectures": ["BertForSequenceClassification"],
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
            "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
        },
        "bert",
        tokenizer_config={
            "model_max_length": 21,
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        },
        ranks=True,
        seed=16,
    ),
    SentenceCase(
        "rerank_without_types",
        "a tokenizer that names no token types, though the model has some; a Tanh",
        {
            **_BERT,
            "architectures": ["BertForSequenceClassification"],
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
        },
        "bert",
        {
            "modules.json": _modules("Transformer"),
            "sentence_bert_config.json": {
                "max_seq_length": 19,
                "transformer_task": "sequence-classification",
            },
            "config_sentence_transformers.json": {
                "model_type": "CrossEncoder",
                "activation_fn": "torch.nn.modules.activation.Tanh",
            },
        },
        ranks=True,
        seed=18,
    ),
    SentenceCase(
        "rerank_new",
        "a cross-encoder with modules.json and a default prompt; positions bound its length",
        {
            **_ROBERTA,
            "architectures": ["RobertaForSequenceClassification"],
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
            "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
        },
        "roberta",
        {
            "modules.json": _modules("Transformer", new=True),
            "sentence_bert_config.json": {
                "transformer_task": "sequence-classification",
                "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
                "module_output_name": "scores",
                "do_lower_case": True,
            },
            "config_sentence_transformers.json": {
                "model_type": "CrossEncoder",
                "activation_fn": "torch.nn.modules.activation.Sigmoid",
                "prompts": {"query": "Q: "},
                "default_prompt_name": "query",
            },
        },
        tokenizer_config={"model_max_length": 30},
        ranks=True,
        seed=17,
    ),
)
SENTENCE_CASES: Final = {case.name: case for case in _CASES}
"""Cases by name."""
