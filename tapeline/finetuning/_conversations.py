"""Conversations in a model's chat template, in which the assistant's turns are to be learned."""

from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from lang_core import InputError, TapelineError
from tapeline.text import ChatTemplate, Tokenizer

_ASSISTANT: Final = "assistant"


class Conversations:
    """Conversations as tokens.

    Args:
        tokenizer: the model's.
        directory: the model's, with its chat template, which is read when the first conversation comes.
        vocabulary: V; every id must be below it.
    """

    def __init__(self, tokenizer: Tokenizer, directory: Path, vocabulary: int) -> None:
        self._tokenizer: Final = tokenizer
        self._directory: Final = directory
        self._vocabulary: Final = vocabulary

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate.find(self._directory, tokens=self._tokenizer.tokens)

    def encode(self, messages: Any, where: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens of a conversation, and which of them are the assistant's, with the ends of its turns.

        Args:
            messages: objects with ``role`` and ``content``.
            where: file and line, for messages.

        Raises:
            InputError: they are not messages, none is the assistant's, or the template refuses them or renders a turn
                otherwise when others follow.
        """
        _check(messages, where)
        try:
            text = self._template.render(messages, add_generation_prompt=False)
            spans = [self._span(messages, i, text, where) for i, m in enumerate(messages) if m["role"] == _ASSISTANT]
            ids, starts = self._tokenizer.encode_with_starts(text, self._vocabulary)
        except TapelineError as error:
            raise error if str(error).startswith(where) else InputError(f"{where}: {error}") from error
        begins, learned = np.array(starts), np.zeros(len(ids), bool)
        for start, stop in spans:
            learned |= (begins >= start) & (begins < stop)
        return np.array(ids, np.int32), learned

    def _span(self, messages: list[dict[str, Any]], index: int, text: str, where: str) -> tuple[int, int]:
        """Returns the characters of one of the assistant's turns, behind the template's generation prompt."""
        before = self._template.render(messages[:index], add_generation_prompt=True) if index else ""
        through = self._template.render(messages[: index + 1], add_generation_prompt=False)
        if not (text.startswith(through) and through.startswith(before)):
            raise InputError(
                f"{where}: the chat template of {self._template.origin} renders turn {index + 1} otherwise when others "
                "follow, so that it cannot be told which tokens are the assistant's: give it as the last turn of a line"
            )
        return len(before), len(through)


def _check(messages: Any, where: str) -> None:
    if not isinstance(messages, list) or not messages:
        raise InputError(f"{where}: messages: expected a list of messages; found {messages!r:.60}")
    for number, message in enumerate(messages, 1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
            raise InputError(
                f"{where}: message {number}: expected an object with role and content; found {message!r:.60}"
            )
    if all(message["role"] != _ASSISTANT for message in messages):
        raise InputError(f"{where}: no message has the role {_ASSISTANT!r}: there is nothing to learn")
