"""Training data: a text file, or JSON lines of texts and conversations, as tokens of which some are to be learned."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from lang_core import InputError, TapelineError, json_value
from tapeline.finetuning._conversations import Conversations
from tapeline.text import Tokenizer

_KINDS: Final = ("text", "messages")


class TrainingDocument(NamedTuple):
    """Tokens of a text or a conversation.

    Attributes:
        ids: token ids, i32 [N].
        learned: whether a token is to be predicted, bool [N].
    """

    ids: np.ndarray
    learned: np.ndarray


class Documents:
    """Reader of training data.

    Args:
        tokenizer: the model's.
        directory: the model's, with its chat template.
        vocabulary: V; every id must be below it.
        end: id that ends a text; None for none.
    """

    def __init__(self, tokenizer: Tokenizer, directory: Path, vocabulary: int, end: int | None) -> None:
        self._tokenizer: Final = tokenizer
        self._vocabulary: Final = vocabulary
        self._end: Final = end
        self._conversations: Final = Conversations(tokenizer, directory, vocabulary)

    def read(self, path: Path) -> list[TrainingDocument]:
        """Reads a file: ``.jsonl`` has an object with ``text`` or ``messages`` per line, any other is one text.

        Raises:
            InputError: the file cannot be read, is empty, or a line is none of these; names the file and the line.
        """
        text = _text(path)
        documents = list(self._lines(path, text)) if path.suffix == ".jsonl" else [self._of_text(text, str(path))]
        if not documents:
            raise InputError(f"data={path}: has no line with a text: give a file with data")
        return documents

    def _lines(self, path: Path, text: str) -> Iterator[TrainingDocument]:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield self._of_line(line, f"{path}:{number}")

    def _of_line(self, line: str, where: str) -> TrainingDocument:
        try:
            fields = json_value(line)
        except ValueError as error:
            raise InputError(f"{where}: this is no JSON ({error}): give an object with {_either()} per line") from None
        kinds = [kind for kind in _KINDS if kind in fields] if isinstance(fields, dict) else []
        if len(kinds) != 1:
            shown = f"{line:.60}" if len(line) <= 60 else f"{line:.60}..."
            raise InputError(f"{where}: expected a JSON object with {_either()}, one of them; found {shown}")
        (kind,) = kinds
        if kind == "text":
            return self._of_text(fields["text"], where)
        ids, learned = self._conversations.encode(fields["messages"], where)
        return TrainingDocument(ids, learned)

    def _of_text(self, text: Any, where: str) -> TrainingDocument:
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{where}: expected a text that is not empty; found {text!r:.60}")
        try:
            ids = self._tokenizer.encode(text, self._vocabulary)
        except TapelineError as error:
            raise InputError(f"{where}: {_short(error)}") from error
        if self._end is not None and ids[-1] != self._end:
            ids.append(self._end)
        return TrainingDocument(np.array(ids, np.int32), np.ones(len(ids), bool))


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"data={path}: cannot be read ({error.strerror}): give a text or .jsonl file") from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path}:{line}: byte {error.start} of the file is no UTF-8: give a text or .jsonl file"
        ) from None
    if not text.strip():
        raise InputError(f"data={path}: is empty: give a file with data")
    return text


def _either() -> str:
    return " or ".join(map(repr, _KINDS))


def _short(error: TapelineError) -> str:
    """Returns an error's message without the text that it may repeat."""
    return str(error) if len(str(error)) < 400 else f"{error!s:.200} ... {str(error)[-200:]}"
