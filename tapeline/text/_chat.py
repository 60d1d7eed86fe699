"""A conversation with a model, as the ids that the model continues."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from lang_core import InputError
from tapeline.text._chat_template import ChatTemplate, Message
from tapeline.text._tokenizer import Tokenizer


class Chat:
    """A conversation that grows turn by turn.

    Args:
        template: of the model.
        tokenizer: of the model.
        system: system message, or None.

    Attributes:
        messages: all that was said. A turn that was refused after ``ask`` is forgotten by setting those from before it.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, system: str | None = None) -> None:
        self._template: Final = template
        self._tokenizer: Final = tokenizer
        self.messages: tuple[Message, ...] = () if system is None else ({"role": "system", "content": system},)

    @classmethod
    def of(cls, directory: Path, tokenizer: Tokenizer | None, system: str | None = None) -> "Chat":
        """Begins a conversation with the model of a directory or a bundle.

        Raises:
            InputError: the tokenizer or the chat template is missing, or one is damaged.
        """
        if tokenizer is None:
            raise InputError(f"`chat`: {directory} has no tokenizer: text cannot become ids; export it with one")
        return cls(ChatTemplate.find(directory, tokens=tokenizer.tokens), tokenizer, system)

    def ask(
        self,
        text: str,
        model_size: int,
        *,
        pictures: int = 0,
        written: Callable[[str], str] | None = None,
    ) -> list[int]:
        """Returns the ids of all that was said, with the user's next turn and the beginning of the answer.

        Args:
            text: the user's turn.
            model_size: the model's vocabulary V.
            pictures: number of pictures before the text.
            written: function that gives pictures their tokens in the whole rendered text; None leaves it.

        Raises:
            InputError: the template refuses the messages, or the text gives ids that the model does not have.
        """
        content = [*({"type": "image"} for _ in range(pictures)), {"type": "text", "text": text}]
        self.messages += ({"role": "user", "content": content if pictures else text},)
        rendered = self._template.render([*self.messages])
        if written is not None:
            rendered = written(rendered)
        return self._tokenizer.encode(rendered, model_size, special_tokens=False)  # the template writes them

    def answered(self, text: str) -> None:
        """Notes the model's answer."""
        self.messages += ({"role": "assistant", "content": text},)

    def end_ids(self) -> frozenset[int]:
        """Returns the ids with which the model ends an answer, beside those of its configuration.

        They are that of the tokenizer's ``eos_token``, and that of the special token which the template puts after an
        answer: instruction-tuned models end a turn with it, and not every configuration says so.
        """
        named = self._template.tokens.get("eos_token", "")
        ids = [self._tokenizer.eos_id(), self._tokenizer.special_id(named)]
        after = self._template.after_answers().lstrip()
        first = self._tokenizer.first_special(after) if after else None
        return frozenset(one for one in (*ids, first) if one is not None)
