"""Tiny models with heads that classify, tag, answer and fill: their files, and the texts that goldens were made of."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy

from tests.goldens.encoders.files import random_encoder_weights
from tests.goldens.sentences.cases import TEXTS as SENTENCES
from tests.goldens.sentences.tokenizers_of_cases import TOKENIZER_CONFIGS, TOKENIZERS

DATA: Final = Path(__file__).parent / "data"

TEXTS: Final = (
    "The cat is on the mat in Berlin",
    *SENTENCES,
    "Berlin, Berlin: the BIG berlin!",
    "a query on the cafe, query-a cafe's cat?",
    "is the catmat big",
    "The cat sat on the mat; the mat was big, and Berlin isn't.",
    "caféBerlin 42 a1b2",
    "the, the. the! the? the",
    *(f"{'the cat is ' * count}on {'a big ' * (count % 3)}mat" for count in range(1, 12)),
    *(f"Is {word} a query?" for word in ("Berlin", "cat", "日本", "x-y", "ßß", "mat on the mat")),
    *(f"{word}ing {word}s {word}" for word in ("cat", "query", "Berlin", "is", "on")),
)
"""Texts that are classified and tagged; those of ``fill`` have masks in them."""

LABELS: Final = ("cat", "the mat", "Berlin")
"""Labels of zero-shot classification."""
HYPOTHESIS: Final = "The text is a {}."
"""Its hypothesis."""

QUESTIONS: Final = (
    ("Is Berlin big?", "The cat is on the mat. Berlin is big, the mat is big. A cat is a cat."),
    ("the cat", "berlin"),
    ("query?", "a cafe on the mat " * 30 + "Berlin is big " * 20),
    ("on", "ñandú 日本語 Ши on the mat, the-cat; the_cat!"),
    ("Is the cat on the mat?", " the  cat\nis on\tthe mat "),
    *((f"is {word} big", f"{word} is big, the {word} is on the mat: " * 4) for word in ("Berlin", "cat", "cafe", "Q")),
)
"""Questions and contexts."""


@dataclass(frozen=True)
class HeadCase:
    """Tiny random model with a head.

    Attributes:
        name: its name.
        twist: what it covers that the others do not.
        task: ``classify``, ``entail`` (zero-shot too), ``tag``, ``answer`` or ``fill``.
        config: ``config.json``.
        tokenizer: name of its tokenizer.
        tokenizer_config: further fields of ``tokenizer_config.json``.
        seed: of the weights.
    """

    name: str
    twist: str
    task: str
    config: Mapping[str, Any]
    tokenizer: str
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1

    def digest(self) -> str:
        """SHA-256 of everything that the goldens depend on."""
        facts = [self.task, self.config, self.tokenizer, self.tokenizer_config, self.seed]
        facts += [TOKENIZERS[self.tokenizer]().to_str(), TEXTS, LABELS, HYPOTHESIS, QUESTIONS]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def mask(self) -> str:
        """Mask of its tokenizer."""
        return str(self.tokenizer_config["mask_token"])

    def masked(self, text: str) -> str:
        """Returns a text with a mask in it, or two if it is long."""
        words = text.split(" ")
        second = [self.mask] if len(words) > 6 else []
        return " ".join([*words[:1], self.mask, *words[2:4], *second, *words[4:12]])


def write_files(directory: Path, case: HeadCase) -> None:
    """Writes every file of a case but the weights."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(dict(case.config)))
    TOKENIZERS[case.tokenizer]().save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **TOKENIZER_CONFIGS[case.tokenizer]}
    (directory / "tokenizer_config.json").write_text(json.dumps({**settings, **case.tokenizer_config}))


def write_weights(directory: Path, case: HeadCase, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Writes the weights of a case."""
    drawn = random_encoder_weights({key: tuple(shape) for key, shape in shapes.items()}, case.seed)
    safetensors.numpy.save_file(
        {key: np.ascontiguousarray(array) for key, array in drawn.items()},
        directory / "model.safetensors",
        metadata={"format": "pt"},
    )


def read_goldens(folder: Path = DATA) -> dict[str, Any]:
    """Returns, per case, its digest, the shapes of its weights and the results; and the versions."""
    return json.loads((folder / "heads.json").read_text(encoding="utf-8"))


def _classes(*names: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


_BERT: Final[dict[str, Any]] = {
    "hidden_act": "gelu",
    "hidden_size": 24,
    "intermediate_size": 31,
    "max_position_embeddings": 40,
    "model_type": "bert",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 200,
}
_ROBERTA: Final[dict[str, Any]] = {**_BERT, "model_type": "roberta", "pad_token_id": 1, "vocab_size": 280}
_XLMR: Final[dict[str, Any]] = {**_ROBERTA, "model_type": "xlm-roberta", "type_vocab_size": 1, "vocab_size": 130}
_DISTILBERT: Final[dict[str, Any]] = {
    "activation": "gelu",
    "dim": 24,
    "hidden_dim": 31,
    "max_position_embeddings": 40,
    "model_type": "distilbert",
    "n_heads": 3,
    "n_layers": 2,
    "pad_token_id": 0,
    "vocab_size": 200,
}
_MODERNBERT: Final[dict[str, Any]] = {
    "hidden_size": 24,
    "intermediate_size": 31,
    "max_position_embeddings": 64,
    "model_type": "modernbert",
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "local_attention": 8,
    "vocab_size": 200,
}
_LLAMA: Final[dict[str, Any]] = {
    "hidden_size": 24,
    "intermediate_size": 31,
    "max_position_embeddings": 64,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 280,
}
_TYPES: Final = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
_SHORT: Final = {"model_max_length": 38}
_BRACKETS: Final = {"mask_token": "[MASK]", **_SHORT}
_ANGLES: Final = {"mask_token": "<mask>", "cls_token": "<s>", "sep_token": "</s>", **_SHORT}
_ENTITIES: Final = _classes("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def _of(config: Mapping[str, Any], architecture: str, **fields: Any) -> dict[str, Any]:
    return {**config, "architectures": [architecture], **fields}


_CASES: Final = (
    HeadCase(
        "classes",
        "three classes, of which one is the text's",
        "classify",
        _of(_BERT, "BertForSequenceClassification", **_classes("negative", "neutral", "positive")),
        "bert",
        {**_BRACKETS, **_TYPES, "model_max_length": 32},
    ),
    HeadCase(
        "several",
        "four classes, of which a text may have several",
        "classify",
        _of(
            _ROBERTA,
            "RobertaForSequenceClassification",
            problem_type="multi_label_classification",
            **_classes("toxic", "kind", "short", "long"),
        ),
        "roberta",
        _ANGLES,
        seed=2,
    ),
    HeadCase(
        "one",
        "one class, and no names",
        "classify",
        _of(_DISTILBERT, "DistilBertForSequenceClassification", **_classes("LABEL_0")),
        "bert_cased",
        _BRACKETS,
        seed=3,
    ),
    HeadCase(
        "regression",
        "two values of a regression",
        "classify",
        _of(_XLMR, "XLMRobertaForSequenceClassification", problem_type="regression", **_classes("x", "y")),
        "xlmr",
        _ANGLES,
        seed=4,
    ),
    HeadCase(
        "decoder",
        "a decoder whose texts end with the token of padding, which does not count",
        "classify",
        _of(_LLAMA, "LlamaForSequenceClassification", pad_token_id=0, **_classes("good", "bad")),
        "qwen",
        {"model_max_length": 50},
        seed=5,
    ),
    HeadCase(
        "entailment",
        "natural-language inference: pairs of texts, and labels of one's own",
        "entail",
        _of(_BERT, "BertForSequenceClassification", **_classes("contradiction", "neutral", "entailment")),
        "bert",
        {**_BRACKETS, **_TYPES},
        seed=6,
    ),
    HeadCase(
        "entailment_first",
        "entailment is the first of two classes",
        "entail",
        _of(_MODERNBERT, "ModernBertForSequenceClassification", **_classes("ENTAILMENT", "not_entailment")),
        "bert_cased",
        _BRACKETS,
        seed=7,
    ),
    HeadCase(
        "entities",
        "tokens of WordPiece, with classes that begin and continue spans",
        "tag",
        _of(_BERT, "BertForTokenClassification", **_ENTITIES),
        "bert_cased",
        _BRACKETS,
        seed=8,
    ),
    HeadCase(
        "parts",
        "pieces of SentencePiece, with classes without a mark",
        "tag",
        _of(_XLMR, "XLMRobertaForTokenClassification", **_classes("O", "NOUN", "VERB")),
        "xlmr",
        _ANGLES,
        seed=9,
    ),
    HeadCase(
        "bytes",
        "tokens of bytes; no class is outside",
        "tag",
        _of(_MODERNBERT, "ModernBertForTokenClassification", vocab_size=280, **_classes("A", "B-A", "I-A")),
        "roberta",
        _ANGLES,
        seed=10,
    ),
    HeadCase(
        "masked",
        "masks between words of WordPiece",
        "fill",
        _of(_BERT, "BertForMaskedLM", vocab_size=180, max_position_embeddings=90),
        "bert",
        {**_BRACKETS, "model_max_length": 90},
        seed=11,
    ),
    HeadCase(
        "masked_bytes",
        "masks between tokens of bytes",
        "fill",
        _of(_ROBERTA, "RobertaForMaskedLM", vocab_size=269, max_position_embeddings=160),
        "roberta",
        {**_ANGLES, "model_max_length": 150},
        seed=12,
    ),
    HeadCase(
        "answers",
        "questions and contexts of WordPiece, with types of tokens",
        "answer",
        _of(_BERT, "BertForQuestionAnswering"),
        "bert",
        {**_BRACKETS, **_TYPES},
        seed=13,
    ),
    HeadCase(
        "answers_of_pieces",
        "questions and contexts of SentencePiece",
        "answer",
        _of(_XLMR, "XLMRobertaForQuestionAnswering"),
        "xlmr",
        {**_ANGLES, "model_input_names": ["input_ids", "attention_mask"]},
        seed=14,
    ),
)
HEAD_CASES: Final = {case.name: case for case in _CASES}
"""Cases by name."""
