"""A model's chat template: messages to the text that the model continues."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from lang_core import JSON_BOUNDS, InputError, checked_choices, file_bytes
from tapeline.rendering import RenderLimits
from tapeline.text._assembly import (
    DEFAULT_TEMPLATE_FILE,
    TOKENIZER_CONFIG,
    TOOL_TEMPLATE_FILE,
    read_object,
    special_tokens,
)
from tapeline.text._renderer import RENDERER, TemplateFault

Message = Mapping[str, Any]
"""``role`` (system, user, assistant, ...) and ``content``, and what else templates read, such as ``tool_calls``."""

_LIMITS: Final = RenderLimits()
_FAULTS: Final = {
    "limit": "{}",
    "security": "the chat template is not allowed to do this: {}",
    "undefined": "the chat template uses an undefined value: {}",
    "refused": "the chat template refuses these messages: {}",
    "memory": "the chat template needs more memory, or more depth, than a rendering may take: send less, or mend it",
    "depth": "the chat template, or a value in it, nests too deep: mend it",
    "failed": "the chat template fails: {}",
    "syntax": "{}: this is not a Jinja template; copy it again from the model's source",
}
_FILE: Final = "chat_template.jinja"
_OLD_FILE: Final = "chat_template.json"  # of processors, for pictures and text
_MODEL_CONFIG: Final = "config.json"
_MARK: Final = "\ue000tapeline\ue000"  # of the private use area: in no template


class NoTemplateError(InputError):
    """A model lacks a chat template."""


class ChatTemplate:
    """Chat template of a model, which renders messages.

    Args:
        text: the template, in Jinja.
        origin: source of the template, for messages.
        tokens: variables of templates for special tokens, such as ``bos_token``.
        tool_text: template that takes the place of this one if there are tools; None for the same.
        limits: time and size of a rendering.

    Attributes:
        origin: as given.
        tokens: as given.

    Raises:
        InputError: the text is not a template.

    >>> template = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", "here")
    >>> template.render([{"role": "user", "content": "Hello"}])
    '[user]Hello'
    """

    def __init__(
        self,
        text: str,
        origin: str,
        tokens: Mapping[str, str] | None = None,
        tool_text: str | None = None,
        *,
        limits: RenderLimits = _LIMITS,
    ) -> None:
        self.origin: Final = origin
        self._limits: Final = limits
        self._text: Final = text + (tool_text or "")
        self.tokens: Final = dict(tokens or {})
        self._template: Final = text
        self._tool_template: Final = text if tool_text is None else tool_text
        for one in {self._template, self._tool_template}:
            try:
                RENDERER.check(one, limits)
            except TemplateFault as fault:
                raise self._error(fault) from fault

    @classmethod
    def find(
        cls, directory: Path, text: str | None = None, *, tokens: Mapping[str, str] | None = None
    ) -> "ChatTemplate":
        """Reads the template as transformers does: its tokenizer's, or its processor's of a model with a vision tower.

        A tokenizer has additional_chat_templates/default.jinja, else chat_template.jinja, else the template of
        tokenizer_config.json. A processor has chat_template.json, else chat_template.jinja, else the others. Without
        any of these, chat_template.json counts for all models. additional_chat_templates/tool_use.jinja can be a
        further template, for tools.

        Args:
            directory: of the model or bundle.
            text: template to take in place of the directory's; its special tokens are found nevertheless.
            tokens: special tokens by name, of the directory's tokenizer; None assembles it to find them.

        Raises:
            NoTemplateError: there is none.
            InputError: a file is damaged.
        """
        tokens = special_tokens(directory) if tokens is None else tokens
        if text is not None:
            return cls(text, "`chat_template`", tokens)
        older, tool_text = read_object(directory / _OLD_FILE).get("chat_template"), None
        has_processor = "vision_config" in read_object(directory / _MODEL_CONFIG)
        if not (has_processor and older):
            tool_text = _read_text(directory / TOOL_TEMPLATE_FILE)
            files = (_FILE, DEFAULT_TEMPLATE_FILE) if has_processor else (DEFAULT_TEMPLATE_FILE, _FILE)
            for file in files:
                text = _read_text(directory / file)
                if text is not None:
                    return cls(text, str(directory / file), tokens, tool_text)
        configured, place = read_object(directory / TOKENIZER_CONFIG).get("chat_template"), TOKENIZER_CONFIG
        if older and (has_processor or not configured):
            configured, place = older, _OLD_FILE
        text, named_tool_text = _configured(configured, directory)
        return cls(text, str(directory / place), tokens, tool_text or named_tool_text)

    @checked_choices
    def render(self, messages: Sequence[Message], /, *, add_generation_prompt: bool = True, **more: Any) -> str:
        """Returns the text of a conversation.

        Args:
            messages: messages so far.
            add_generation_prompt: True appends the beginning of the assistant's answer.
            **more: further variables of the template's, such as ``tools``.

        Raises:
            InputError: the template refuses the messages, fails, takes too long, makes too much text, or violates the
                sandbox.
        """
        began = time.monotonic()
        copies = self._in_form(messages)
        try:
            return self._made(copies, {"add_generation_prompt": add_generation_prompt, **more}, began)
        except TemplateFault as fault:
            raise self._error(fault) from fault

    def _made(self, messages: list[dict[str, Any]], more: Mapping[str, Any], began: float) -> str:
        """Returns a rendering within the time that is left for a call, which began at ``began``."""
        variables = {"tools": None, "documents": None, **self.tokens, **more}
        template = self._tool_template if variables["tools"] else self._template
        limits = replace(self._limits, used=min(time.monotonic() - began, self._limits.seconds))
        return RENDERER.render(template, {"messages": messages, **variables}, limits)

    def _error(self, fault: TemplateFault) -> InputError:
        return InputError(f"{self.origin}: {_FAULTS[fault.kind].format(fault.message)}")

    @property
    def text(self) -> str:
        """The template, in Jinja; that of conversations without tools."""
        return self._template

    @cached_property
    def takes_parts(self) -> bool:
        """True of a template that reads a message's content as a list of parts, and text alone not at all."""
        began = time.monotonic()
        whole, parts = _MARK, [{"type": "text", "text": _MARK}]
        return not self._shows(whole, began) and self._shows(parts, began)

    def _shows(self, content: object, began: float) -> bool:
        """Returns whether a user's turn with this content is rendered with the mark in it."""
        try:
            return _MARK in self._made([{"role": "user", "content": content}], {}, began)
        except TemplateFault as fault:
            if fault.kind in ("limit", "memory"):  # three renderings would take three times as long to fail
                raise self._error(fault) from fault
            return False

    def _in_form(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Returns the messages without fields that are None, with text as a part if the template wants parts."""
        copies = [{key: value for key, value in message.items() if value is not None} for message in messages]
        for copy in copies:
            content = copy.get("content")
            if isinstance(content, str) and self.takes_parts:
                copy["content"] = [{"type": "text", "text": content}]
        return copies

    def mentions(self, word: str) -> bool:
        """Returns whether a word stands anywhere in the template, such as the name of a role or a variable."""
        return word in self._text

    def after_answers(self) -> str:
        """Returns the text that the template puts after an answer, with which the model ends one; empty for none."""
        messages = [{"role": "user", "content": "."}, {"role": "assistant", "content": _MARK}]
        try:
            return self.render(messages, add_generation_prompt=False).partition(_MARK)[2]
        except InputError:
            return ""


def _read_text(path: Path) -> str | None:
    """Returns the text of a file; None without a file."""
    if not path.exists():
        return None
    try:
        return file_bytes(path, JSON_BOUNDS.nbytes).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}; copy it again from the model's source") from error


def _configured(template: object, directory: Path) -> tuple[str, str | None]:
    """Returns the template, and the one for tools if that is another."""
    tool_text, place = None, directory / TOKENIZER_CONFIG
    if isinstance(template, list):
        entries = [entry for entry in template if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
        named = {entry["name"]: entry.get("template") for entry in entries}
        if "default" not in named:
            raise InputError(
                f"`chat`: {place} has the chat templates {', '.join(map(str, named)) or 'none'}, but no "
                f"default: put the wanted one beside it as {_FILE}"
            )
        template, tool_text = named["default"], named.get("tool_use")
    if template is None:
        raise NoTemplateError(
            f"`chat`: {directory} has no chat template, neither {_FILE} nor chat_template in {TOKENIZER_CONFIG}: "
            f"put the model's {_FILE} there, or continue a plain text: generate without `chat`"
        )
    if not isinstance(template, str):
        raise InputError(
            f"{directory / TOKENIZER_CONFIG}: chat_template: expected text; found {template!r:.80}: copy it again"
        )
    return template, tool_text if isinstance(tool_text, str) else None
