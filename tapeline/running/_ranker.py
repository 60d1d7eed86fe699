"""Scores of documents for a query, with a bundle of a cross-encoder or of a reranker that is a language model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import ConfigError, InputError
from tapeline.bundle import Bundle
from tapeline.engines import Session
from tapeline.running._calls import Encoded, TextCalls
from tapeline.running._prompts import Prompts
from tapeline.text import ChatTemplate, NoTemplateError, Tokenizer
from transformer_core import config_fields

INSTRUCTION: Final = "Given a web search query, retrieve relevant passages that answer the query"
"""Instruction of Qwen3-Reranker where none is given."""

# The prompt of Qwen3-Reranker as its authors published it, for bundles whose chat template has no documents.
_QWEN3: Final = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
_SIGMOID: Final = "Sigmoid"
_ACTIVATIONS: Final = (_SIGMOID, "Identity")


class TextRanker:
    """Bundle that scores pairs of texts, in a session."""

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle gives one score per pair.

        Raises:
            InputError: it does not, it is a language model without a prompt for a query and a document, or its chat
                template is damaged.
            ConfigError: its files say what is not supported.
        """
        if not ranks(bundle):
            raise InputError(
                f"{bundle.path} ranks no texts: export a model ForSequenceClassification with one label, or a language "
                "model with a LogitScore in modules.json of sentence-transformers"
            )
        self._calls = TextCalls(bundle, session, "logits", "ranks no texts", "export another model")
        self._tokenizer = tokenizer
        self._bounded = _activation(bundle.path) == _SIGMOID
        self._prompt = _prompt(bundle) if "kv_heads" in bundle.config.model else None

    def __call__(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """Returns the score f32 of each document, from 0 to 1 unless the model's files say otherwise.

        Raises:
            InputError: a pair has more tokens than the bundle takes.
        """
        if not documents:
            return np.zeros((0,), np.float32)
        logits = self._calls([self._encoded(query, document) for document in documents])[:, 0]
        return _logistic(logits) if self._bounded else logits

    def pair_tokens(self, query: str, document: str) -> int:
        """Returns the number of tokens of a pair, those of the prompt included."""
        return len(self._pair(query, document)[0])

    def _encoded(self, query: str, document: str) -> Encoded:
        ids, types = self._pair(query, document)
        self._calls.check(document, len(ids))
        return ids, types

    def _pair(self, query: str, document: str) -> Encoded:
        if self._prompt is None:
            return self._tokenizer.encode_pair(query, document, self._calls.vocabulary)
        text = self._prompt(query, document)
        ids = self._tokenizer.encode(text, self._calls.vocabulary, special_tokens=False)
        return ids, [0] * len(ids)


def ranks(bundle: Bundle) -> bool:
    """Returns whether a bundle gives one score for a pair of texts."""
    forward = next((point for point in bundle.config.entry_points if point.name == "forward"), None)
    if forward is None or bundle.config.model.get("labels") != 1:
        return False
    return "attention_mask" in [argument.name for argument in forward.arguments]


def _prompt(bundle: Bundle) -> Callable[[str, str], str]:
    """Returns what makes the prompt of a query and a document: the bundle's chat template, or Qwen3-Reranker's."""
    instruction = Prompts.read(bundle.path).text()
    template = _template(bundle.path)

    def rendered(query: str, document: str) -> str:
        assert template is not None  # it is asked where there is one
        before = [{"role": "system", "content": instruction}] if instruction else []
        messages = [*before, {"role": "query", "content": query}, {"role": "document", "content": document}]
        return template.render(messages)

    if template is not None and _shows_both(rendered):
        return rendered
    if not str(bundle.config.model.get("family")).startswith("Qwen3"):
        raise InputError(
            f"{bundle.path}: its chat template shows no messages of the roles query and document, which a reranker's "
            "prompt is made of: put the model's chat_template.jinja into the bundle"
        )
    return lambda query, document: _QWEN3.format(instruction=instruction or INSTRUCTION, query=query, document=document)


def _template(directory: Path) -> ChatTemplate | None:
    """Returns a bundle's chat template; None where it has none.

    Raises:
        InputError: its file is damaged.
    """
    try:
        return ChatTemplate.find(directory)
    except NoTemplateError:
        return None


def _shows_both(rendered: Callable[[str, str], str]) -> bool:
    query, document = "the text of a query", "the text of a document"
    try:
        text = rendered(query, document)
    except InputError:  # the template refuses such roles
        return False
    return query in text and document in text


def _activation(directory: Path) -> str:
    """Returns the activation of the score, by its class in torch.

    Raises:
        ConfigError: it is not supported.
    """
    config = config_fields(str(directory / "config.json"), "export the bundle again").values
    inner: Any = config.get("sentence_transformers")
    named = (inner if isinstance(inner, dict) else {}).get("activation_fn")
    path = directory / "config_sentence_transformers.json"
    beside = config_fields(str(path), "fetch it again").values if path.exists() else {}
    named = named or config.get("sbert_ce_default_activation_function") or beside.get("activation_fn") or _SIGMOID
    kind = str(named).rpartition(".")[2]
    if kind not in _ACTIVATIONS:
        raise ConfigError(
            f"{directory}: its files name the activation {named!r} of the score; expected one of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    return kind


def _logistic(logits: np.ndarray) -> np.ndarray:
    """Computes 1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
