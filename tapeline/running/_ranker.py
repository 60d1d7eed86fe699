"""Scores of documents for a query, with a bundle of a cross-encoder or of a reranker that is a language model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import ConfigError, InputError
from runtime import Session
from tapeline.bundle import Bundle
from tapeline.running._calls import TextCalls
from tapeline.running._labels import logistic
from tapeline.running._prompts import Prompts
from tapeline.running._text_array import TextArray
from tapeline.text import ChatTemplate, EncodedText, NoTemplateError, Tokenizer
from transformer_core import MODULES_FILE, config_fields

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


class TextRanker:
    """Bundle that scores pairs of texts, in a session."""

    def __init__(self, bundle: Bundle, session: Session, tokenizer: Tokenizer) -> None:
        """Checks that the bundle gives one score per pair.

        Raises:
            InputError: it does not, it is a language model without a prompt for a query and a document, or its chat
                template is damaged.
            ConfigError: its files need an unsupported feature.
        """
        if not ranks(bundle):
            raise InputError(
                f"{bundle.path} ranks no texts: export a model ForSequenceClassification with one label, or a language "
                "model with a LogitScore in modules.json of sentence-transformers"
            )
        self._calls = TextCalls(bundle, session, ("logits",), "ranks no texts", "export another model")
        self._tokenizer = tokenizer
        self._activation = _ACTIVATIONS[_activation(bundle.path)]
        self._prompt = _prompt(bundle) if "kv_heads" in bundle.config.model else None
        self._before = "" if self._prompt is not None else Prompts.read(bundle.path).text()
        self._encoder = self._calls.encoder(tokenizer)

    def __call__(
        self,
        query: str,
        documents: Sequence[str],
        *,
        truncate: bool = True,
        check: Callable[[], object] = lambda: None,
    ) -> TextArray:
        """Returns the score f32 of each document, from 0 to 1 unless the model's files say otherwise.

        Args:
            query: the query.
            documents: the documents.
            truncate: whether pairs that are longer than a cross-encoder reads are truncated, and not refused.
            check: called before each pair is encoded and each call of the model; its exceptions end the work.

        Raises:
            InputError: a pair has more tokens than the bundle takes.
        """
        if not documents:
            return TextArray.of(np.zeros((0,), np.float32), [])
        pairs: list[EncodedText] = []
        for document in documents:
            check()
            pair = self._pair(query, document)
            self._calls.check(document, pair, truncate=truncate)
            pairs.append(pair)
        return TextArray.of(self._activation(self._calls(pairs, check=check)[:, 0]), pairs)

    def pair_tokens(self, query: str, document: str) -> int:
        """Returns the number of tokens of a pair that are read, those of the prompt included."""
        return len(self._pair(query, document).ids)

    def _pair(self, query: str, document: str) -> EncodedText:
        if self._prompt is None:
            pair = self._encoder.encode_pair(f"{self._before}{query}", document, self._calls.vocabulary)
            return self._calls.typed(pair)
        text = self._prompt(query, document)
        ids = self._tokenizer.encode(text, self._calls.vocabulary, special_tokens=False)
        return EncodedText(ids, [0] * len(ids))


def ranks(bundle: Bundle) -> bool:
    """Returns whether a bundle gives one score for a pair of texts."""
    forward = next((point for point in bundle.config.entry_points if point.name == "forward"), None)
    if forward is None or bundle.config.model.get("labels") != 1:
        return False
    return "attention_mask" in [argument.name for argument in forward.arguments]


def _prompt(bundle: Bundle) -> Callable[[str, str], str]:
    """Returns the template of the prompt of a query and a document: the bundle's chat template, or Qwen3-Reranker's."""
    instruction = Prompts.read(bundle.path).text()
    template = _template(bundle.path)

    def rendered(query: str, document: str) -> str:
        assert template is not None  # it is asked if there is one
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
    """Returns a bundle's chat template; None if it has none.

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
    named = named or config.get("sbert_ce_default_activation_function")
    path = directory / "config_sentence_transformers.json"
    beside = config_fields(str(path), "fetch it again").values.get("activation_fn") if path.exists() else None
    # sentence-transformers reads the second file only if there are modules, and then it counts.
    first, second = (beside, named) if (directory / MODULES_FILE).exists() else (named, beside)
    named = first or second or _SIGMOID
    kind = str(named).rpartition(".")[2]
    if kind not in _ACTIVATIONS or not (str(named) == kind or str(named).startswith("torch.nn.")):
        raise ConfigError(
            f"{directory}: its files name the activation {named!r} of the score; expected one of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    return kind


_ACTIVATIONS: Final[dict[str, Callable[[np.ndarray], np.ndarray]]] = {
    _SIGMOID: logistic,
    "Identity": lambda logits: logits,
    "Tanh": np.tanh,
    "ReLU": lambda logits: np.maximum(logits, 0),
}
