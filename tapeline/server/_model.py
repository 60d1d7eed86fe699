"""Served models: a name, and the source of answers."""

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from generation import SamplingConfig
from generation.engine import EngineFigures, Event, PromptPicture, Ticket, TokenRequest
from lang_core import checked_choices
from tapeline.server._adapters import ModelAdapters, ServedAdapter
from tapeline.server._errors import RequestError
from tapeline.server._lengths import check_length, most_letters
from tapeline.server._messages import ChatMessage, template_messages
from tapeline.server._options import PrefixCache
from tapeline.server._pictures import PictureReader, PixelBudget, refuse_pictures
from tapeline.server._values import joined
from tapeline.text import ChatTemplate, Tokenizer, check_ids
from tapeline.toolcalls import ToolSupport, generic_messages

_SECRET: Final = os.urandom(32)
_UNKNOWN: Final = 4  # times as many letters as others, if a tokenizer may join or drop any number of them
_MARK: Final = "\ue000end\ue000"  # of the private use area: in no template
_RESERVED: Final = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
_OF_JINJA: Final = frozenset(
    """
    self super loop caller varargs kwargs range dict lipsum cycler joiner namespace raise_exception strftime_now
    true false none True False None
    """.split()
)


class TokenEngine(Protocol):
    """Engine of ``generation.engine``, as far as the server needs it."""

    def check_room(self, count: int) -> None:
        """Checks whether the engine takes some requests now."""
        ...

    def submit(self, request: TokenRequest, on_event: Callable[[Event], None]) -> Ticket:
        """Asks for an answer; its events come on the engine's thread."""
        ...

    def figures(self) -> EngineFigures:
        """Returns the engine's figures."""
        ...

    def fault(self, seconds: float) -> str | None:
        """Returns why the engine cannot answer: it has ended, or does not make progress for some seconds.

        None if it can.
        """
        ...

    def drain(self, seconds: float) -> object:
        """Takes no more requests, and waits for those that run."""
        ...

    def close(self) -> None:
        """Ends running calls, and frees the model."""
        ...


class ServedModel(Protocol):
    """Model under a name.

    Attributes:
        name: name of the model.
        created: when its bundle was written, in seconds since 1970.
        context: positions of its caches, or largest number of tokens of a text.
    """

    @property
    def name(self) -> str: ...

    @property
    def created(self) -> int: ...

    @property
    def context(self) -> int: ...

    def fault(self, seconds: float) -> str | None:
        """Returns why the model cannot answer, or None if it can; ``seconds`` without progress count as stuck."""
        ...

    def stalled_seconds(self) -> float:
        """Returns the time since the model's last progress; 0 while it is idle."""
        ...

    def drain(self, seconds: float) -> None:
        """Waits for the answers that run."""
        ...

    def close(self) -> None:
        """Frees the model."""
        ...


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Conversation as the engine takes it.

    Attributes:
        token_ids: its tokens.
        pictures: pictures in the places of some of them.
    """

    token_ids: Sequence[int]
    pictures: Sequence[PromptPicture] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """Model that generates text.

    Attributes:
        name: name of the model.
        created: when its bundle was written, in seconds since 1970.
        context: positions of its caches.
        vocabulary: size of the vocabulary, V.
        engine: makes tokens.
        tokenizer: text to tokens and back.
        ends: tokens that end a text.
        template: chat template; None if the model has none.
        no_template: why there is none.
        tools: tools in conversations; None without a template.
        chat_ends: tokens that end the answer of a conversation.
        defaults: sampling of requests that choose none.
        pictures: reads the pictures of conversations; None of a model that takes none.
        adapters: adapters that requests may choose; None of a model that takes none.
        adapter: adapter of the answers; None for the model alone.
        owner: the model that was loaded; None if it is this one.
    """

    name: str
    created: int
    context: int
    vocabulary: int
    engine: TokenEngine
    tokenizer: Tokenizer
    ends: frozenset[int]
    template: ChatTemplate | None = None
    no_template: str = ""
    tools: ToolSupport | None = None
    chat_ends: frozenset[int] = frozenset()
    defaults: SamplingConfig
    pictures: PictureReader | None = None
    adapters: ModelAdapters | None = None
    adapter: ServedAdapter | None = None
    owner: "TextModel | None" = None

    def adapted(self, name: str) -> "TextModel | None":
        """Returns the model with an adapter; None if it has none of that name."""
        adapter = None if self.adapters is None else self.adapters.get(name)
        if adapter is None:
            return None
        return replace(self, name=f"{self.name}:{name}", adapter=adapter, owner=self)

    def fault(self, seconds: float) -> str | None:
        """Returns why the engine cannot answer: it has ended, or does not make progress for some seconds.

        None if it can.
        """
        return self.engine.fault(seconds)

    def stalled_seconds(self) -> float:
        """Returns the time since the engine's last progress; 0 while it is idle."""
        return self.engine.figures().stalled_seconds

    def drain(self, seconds: float) -> None:
        """Waits for the answers that run."""
        self.engine.drain(seconds)

    def close(self) -> None:
        """Frees the model."""
        self.engine.close()

    @checked_choices
    def encode(self, text: str, *, special_tokens: bool = True) -> list[int]:
        """Returns the tokens of a text."""
        return self.tokenizer.encode(text, self.vocabulary, special_tokens=special_tokens)

    def kept_tokens(self, truncate: int | None, new_tokens: int | None) -> int | None:
        """Returns the largest number of tokens of a prompt that is truncated; None for one that is not.

        Args:
            truncate: ``truncate_prompt_tokens`` of the request: a number, -1 for as many as fit, or None.
            new_tokens: largest number of new tokens; None for all that fit.
        """
        fitting = max(1, self.context + 1 - (new_tokens or 1))
        return truncate if truncate is None or truncate > 0 else fitting

    @checked_choices
    def prompt_ids(
        self, prompt: str | Sequence[int], *, special_tokens: bool = True, most: int | None = None
    ) -> list[int]:
        """Returns the tokens of a prompt that is a text, or tokens already.

        Args:
            prompt: text or tokens.
            special_tokens: whether a text has the tokens that the tokenizer puts around it.
            most: largest number of tokens, of which the last are kept; None keeps all.

        Raises:
            InputError: a token is none of the model's, or the text has none.
            RequestError: the text is too long for the context, which its length tells.
        """
        if most is not None:
            check_length(len(prompt), self.context, "prompt")
        elif isinstance(prompt, str):
            self._check_length(prompt, "prompt")
        elif len(prompt) > self.context:
            raise self._too_long(str(len(prompt)), "prompt")
        token_ids = self.encode(prompt, special_tokens=special_tokens) if isinstance(prompt, str) else list(prompt)
        token_ids = token_ids if most is None else token_ids[-most:]
        check_ids(token_ids, self.vocabulary, "`prompt`")
        if self.pictures is not None:
            self.pictures.placed(token_ids, ())  # image tokens without pictures mean nothing
        return token_ids

    @checked_choices
    def chat_prompt(
        self,
        messages: Sequence[ChatMessage],
        budget: PixelBudget,
        variables: Mapping[str, Any] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continued: bool = False,
        most: int | None = None,
        any_length: bool = False,
    ) -> ChatPrompt:
        """Returns a conversation in the model's template, as tokens and pictures.

        Args:
            messages: messages so far.
            budget: limits and memory of pictures.
            variables: further variables of the template.
            tools: tools that the model may call.
            add_generation_prompt: True appends the beginning of the answer.
            continued: True ends the text after the last message's content, for the model to go on with it.
            most: largest number of tokens, of which the last are kept; None keeps all.
            any_length: True encodes a conversation that is longer than the context, up to ``most_letters``.

        Raises:
            InputError: the template is missing or refuses the messages, or an image is invalid.
            RequestError: the model lacks a chat template, a variable is one that the server gives, or the conversation
                is too long for the context, which the length of its text tells.
        """
        if self.pictures is None:
            refuse_pictures(messages, self.name)
            text, tiles = self._rendered(messages, variables or {}, tools, add_generation_prompt, continued), ()
        else:
            tiles = self.pictures.read(messages, budget)
            rendered = self._rendered(messages, variables or {}, tools, add_generation_prompt, continued)
            text = self.pictures.written(rendered, tiles)
        if most is not None and self.pictures is not None:
            raise RequestError(
                "truncate_prompt_tokens: not supported by a model that takes pictures; leave the field out",
                param="truncate_prompt_tokens",
            )
        if any_length or most is not None:
            check_length(len(text), self.context, "messages")
        else:
            self._check_length(text, "messages")
        token_ids = self.encode(text, special_tokens=False)  # the template writes them
        if self.pictures is None:
            return ChatPrompt(token_ids if most is None else token_ids[-most:])
        return ChatPrompt(token_ids, self.pictures.placed(token_ids, tiles))

    @checked_choices
    def chat_text(
        self,
        messages: Sequence[ChatMessage],
        variables: Mapping[str, Any] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continued: bool = False,
    ) -> str:
        """Returns a conversation in the model's template, as text; see ``chat_prompt``.

        Raises:
            InputError: the template refuses the messages.
            RequestError: the model lacks a chat template, or a variable is one that the server gives.
        """
        return self._rendered(messages, variables or {}, tools, add_generation_prompt, continued)

    def _check_length(self, text: str, field: str) -> None:
        """Checks a text by its length, before it is encoded: to encode megabytes takes seconds."""
        least = self.tokenizer.least_tokens(text)
        if least > self.context:
            raise self._too_long(f"at least {least}", field)
        if not least and len(text) > most_letters(_UNKNOWN * self.context):
            raise self._too_long(f"{len(text)} letters", field)

    def _too_long(self, length: str, field: str) -> RequestError:
        return RequestError(
            f"the model's context is {self.context} tokens: the prompt has {length}; shorten it",
            param=field,
            code="context_length_exceeded",
        )

    def _rendered(
        self,
        messages: Sequence[ChatMessage],
        variables: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        continued: bool,
    ) -> str:
        if self.template is None:
            raise RequestError(f"model {self.name!r} has no chat template: {self.no_template}", param="messages")
        _check_variables(variables, self.template)
        said = template_messages(messages, developers=self.template.mentions("developer"))
        if self.tools is not None and self.tools.generic:
            said = generic_messages(said, tools or (), system=self.tools.takes_system)
            tools = None
        if continued:
            return _continued(self.template, said, tools, variables)
        return self.template.render(said, add_generation_prompt=add_generation_prompt, tools=tools, **variables)


def _continued(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    variables: Mapping[str, Any],
) -> str:
    """Returns the text of a conversation up to the end of its last message's content.

    Raises:
        RequestError: the template does not write the content of the last message as it is.
    """
    last = messages[-1]
    content = last["content"]
    if not isinstance(content, str):
        raise RequestError("continue_final_message: the last message must be text", param="continue_final_message")
    kept = content.rstrip()
    marked = {**last, "content": f"{kept}{_MARK}"}
    text = template.render([*messages[:-1], marked], add_generation_prompt=False, tools=tools, **variables)
    before, mark, _ = text.rpartition(_MARK)
    if not mark or not before.endswith(kept):
        raise RequestError(
            "continue_final_message: the chat template does not write the last message as it is: leave the field out",
            param="continue_final_message",
        )
    return before + content[len(kept) :]


def _check_variables(variables: Mapping[str, Any], template: ChatTemplate) -> None:
    """Refuses variables of a request that the template does not get from there.

    Raises:
        RequestError: a variable has the name of one that the server gives, or of Jinja's own.
    """
    for name in sorted(variables):
        where = joined("chat_template_kwargs", name)
        if name in _RESERVED or name in template.tokens:
            raise RequestError(f"{where}: the template gets this from the server; leave it out", param=where)
        if name in _OF_JINJA:
            raise RequestError(f"{where}: the name has a meaning of its own in templates; choose another", param=where)


def cache_salt(key: str | None, sharing: PrefixCache, secret: bytes | None = None) -> str | None:
    """Returns the salt of a request's prefixes: the same for requests that reuse each other's.

    Args:
        key: API key of the request; None if the server asks for none.
        sharing: who reuses prefixes.
        secret: secret of the salts; by default one of this process.

    Returns:
        The salt, from which nobody learns the key; None for a request that reuses nothing.
    """
    if sharing == "off":
        return None
    if sharing == "shared" or key is None:
        return ""
    return hmac.new(secret or _SECRET, key.encode(), hashlib.sha256).hexdigest()


def client_name(key: str | None, user: str | None, address: str) -> str:
    """Returns the name by which requests of one client are told from others': key and user, or the address."""
    if key is None:
        return f"{address}/{user or ''}"
    return f"{hashlib.sha256(key.encode()).hexdigest()[:16]}/{user or ''}"
