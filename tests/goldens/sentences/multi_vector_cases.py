"""Tiny models with a vector for each token (ColBERT), and the texts that goldens were made of."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy

from tests.goldens.encoders.files import random_encoder_weights, read_encoder_manifest
from tests.goldens.sentences.tokenizers_of_cases import TOKENIZER_CONFIGS, TOKENIZERS

DATA: Final = Path(__file__).parent / "data" / "multi_vector.npz"
QUERIES: Final = ("Is Berlin big?", "the cat", "the cat is on the mat, the cat is on the mat, the cat is in Berlin")
DOCUMENTS: Final = ("The cat is on the mat in Berlin.", "a", "a query, a cafe, a cat; " * 9, "", "berlin: 42!")
_SIZE: Final = 24
_OURS: Final = "sentence_transformers."
_CONFIG: Final = {
    "architectures": ["BertModel"],
    "hidden_act": "gelu",
    "hidden_size": _SIZE,
    "intermediate_size": 31,
    "max_position_embeddings": 40,
    "model_type": "bert",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "vocab_size": 180,
}
_TOKENS: Final = {"cls_token": "[CLS]", "mask_token": "[MASK]", "pad_token": "[PAD]", "sep_token": "[SEP]"}


@dataclass(frozen=True)
class MultiVectorCase:
    """Tiny model.

    Attributes:
        name: its name.
        settings: fields of sentence_bert_config.json.
        mask: fields of the mask's config.json.
        prompts: prompts by task.
        similarity: function that compares texts; the default of the library if None.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    mask: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    similarity: str | None = None


CASES: Final = (
    MultiVectorCase("plain"),
    MultiVectorCase(
        "colbert",
        {"query_expansion": {"strategy": "fixed", "length": 12}, "document_length": 20},
        {"skiplist_words": [",", ".", "!", ";", "nowhere"]},
        {"query": "the ", "document": "a "},
    ),
    MultiVectorCase(
        "attended",
        {"query_expansion": {"strategy": "min", "length": 9, "attend": True, "token": "[SEP]"}, "query_length": 14},
        {"skiplist_words": ["the"], "skiplist_tasks": ["query", "document"]},
        similarity="meanmaxsim",
    ),
)


def write_model(directory: Path, case: MultiVectorCase) -> None:
    """Writes the files of a case, as sentence-transformers saves them."""
    modules = (("base.modules.transformer", "Transformer"), ("base.modules.dense", "Dense"))
    masked = (
        ("multi_vector_encoder.modules.multi_vector_mask", "MultiVectorMask"),
        ("base.modules.normalize", "Normalize"),
    )
    kinds = (*modules, *masked)
    entries = [
        {"idx": index, "name": str(index), "path": f"{index}_{kind}" if index else "", "type": f"{_OURS}{room}.{kind}"}
        for index, (room, kind) in enumerate(kinds)
    ]
    named = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    dense = {"in_features": _SIZE, "out_features": 10, "bias": False, **named}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    ours = {"model_type": "MultiVectorEncoder", "similarity_fn_name": case.similarity, "prompts": dict(case.prompts)}
    files = {
        "config.json": _CONFIG,
        "modules.json": entries,
        "config_sentence_transformers.json": ours,
        "sentence_bert_config.json": dict(case.settings),
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **TOKENIZER_CONFIGS["bert"], **_TOKENS},
        "1_Dense/config.json": dense,
        "2_MultiVectorMask/config.json": {"skiplist_words": [], "keep_only_token_ids": None, **case.mask},
        "3_Normalize/config.json": named,
    }
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(json.dumps(content))
    TOKENIZERS["bert"]().save(str(directory / "tokenizer.json"))
    shapes = {name: tuple(shape) for name, shape in _shapes().items()}
    _write(directory / "model.safetensors", shapes)
    _write(directory / "1_Dense" / "model.safetensors", {"linear.weight": (10, _SIZE)})


def _shapes() -> dict[str, list[int]]:
    """Returns the shapes of the golden BERT, in the sizes of these models."""
    stored = read_encoder_manifest()["cases"]["bert"]["shapes"]
    sizes = {24: _SIZE, 41: 31, 67: 180, 19: 40, 3: 2}
    return {name: [sizes[one] for one in shape] for name, shape in stored.items() if "layer.2." not in name}


def _write(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    drawn = random_encoder_weights(shapes, 77)
    arrays = {key: np.ascontiguousarray(array) for key, array in drawn.items()}
    safetensors.numpy.save_file(arrays, path, metadata={"format": "pt"})
