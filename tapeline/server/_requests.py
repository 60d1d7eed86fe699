"""Bodies of the API's requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tapeline.running.transcribing import TranscriptionFormat
from tapeline.server._errors import RequestError
from tapeline.server._fields import MOST_LOGPROBS, GenerationFields
from tapeline.server._messages import ChatMessage
from tapeline.server._readers import Choice, Either, Flag, Items, Number, Table, Text, Whole
from tapeline.server._records import Record, option, required

_MODEL: Final = "Name of a model that is served; may be left out where there is one."
_TOKENS: Final = Items(Whole(0), 1)
_MOST_PROMPTS: Final = 64
_MOST_TEXTS: Final = 2048
_NO_AUDIO: Final = "text only; leave the field out"
_NO_REASONING: Final = "leave the field out; a template that has a switch for thinking takes it by chat_template_kwargs"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest(GenerationFields):
    """Body of /v1/chat/completions."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "audio": _NO_AUDIO,
        "functions": "give tools",
        "function_call": "give tool_choice",
        "modalities": _NO_AUDIO,
        "moderation": "answers are not moderated; leave the field out",
        "prediction": "leave the field out",
        "prompt_cache_key": "prompts that begin alike share their beginning by content; leave the field out",
        "prompt_cache_options": "prompts that begin alike share their beginning by content; leave the field out",
        "prompt_cache_retention": "prompts that begin alike share their beginning by content; leave the field out",
        "reasoning_effort": _NO_REASONING,
        "safety_identifier": "give user",
        "service_tier": "all requests are served alike; leave the field out",
        "verbosity": "leave the field out",
        "web_search_options": "nothing is fetched; leave the field out",
    }

    messages: tuple[ChatMessage, ...] = required(Items(Record(ChatMessage), 1), "What was said so far.")
    max_completion_tokens: int | None = option(Whole(1), "The same as max_tokens.")
    logprobs: bool = option(Flag(), "Send the log probability of each token.", False)
    top_logprobs: int | None = option(Whole(0, MOST_LOGPROBS), "Likeliest tokens to send in each place.")
    tools: tuple[Mapping[str, Any], ...] | None = option(Items(Table()), "Functions that the model may call.")
    tool_choice: str | Mapping[str, Any] | None = option(
        Either((Choice(("none", "auto", "required")), Table())), "Whether to call one, or which."
    )
    parallel_tool_calls: bool = option(Flag(), "Whether an answer may have several calls.", True)
    chat_template_kwargs: Mapping[str, Any] | None = option(Table(most=32), "Further variables of the chat template.")

    def check(self) -> None:
        """Checks what one field alone cannot say.

        Raises:
            RequestError: fields contradict each other.
        """
        GenerationFields.check(self)
        if self.max_tokens == 0:
            raise RequestError("max_tokens: expected a whole number of at least 1; found 0", param="max_tokens")
        if self.max_tokens is not None and self.max_completion_tokens not in (None, self.max_tokens):
            raise RequestError(
                f"max_completion_tokens: {self.max_completion_tokens} contradicts max_tokens={self.max_tokens}: give "
                "one of them",
                param="max_completion_tokens",
            )
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError("top_logprobs: goes with `logprobs`: true", param="top_logprobs")

    @property
    def new_tokens(self) -> int | None:
        """Largest number of new tokens; None where the request does not say."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def alternatives(self) -> int | None:
        """Likeliest tokens to send in each place; None for no log probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest(GenerationFields):
    """Body of /v1/completions."""

    REFUSED: ClassVar[Mapping[str, str]] = {"suffix": "text is continued only; leave the field out"}

    prompt: str | tuple[Any, ...] = required(
        Either((Text(1), _TOKENS, Items(Text(1), 1, _MOST_PROMPTS), Items(_TOKENS, 1, _MOST_PROMPTS))),
        "Text or token ids to go on from, or a list of such.",
    )
    best_of: int = option(Choice((1,)), "Only 1: every answer is sent.", 1)
    echo: bool = option(Flag(), "Begin the answer with the prompt.", False)
    logprobs: int | None = option(Whole(0, MOST_LOGPROBS), "Likeliest tokens to send in each place.")

    def check(self) -> None:
        """Checks what one field alone cannot say.

        Raises:
            RequestError: fields contradict each other.
        """
        GenerationFields.check(self)
        if self.max_tokens == 0 and not self.echo and self.prompt_logprobs is None:
            raise RequestError("max_tokens: 0 goes with `echo` or `prompt_logprobs`; give 1", param="max_tokens")

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        """Every prompt, as text or token ids."""
        if isinstance(self.prompt, str) or isinstance(self.prompt[0], int):
            return (self.prompt,)
        return self.prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingRequest:
    """Body of /v1/embeddings."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    model: str | None = option(Text(), _MODEL)
    input: str | tuple[str, ...] = required(
        Either((Text(1), Items(Text(1), 1, _MOST_TEXTS))), "Text to embed, or a list of texts; token ids are not taken."
    )
    encoding_format: str = option(Choice(("float", "base64")), "Numbers, or the bytes of f32 in base64.", "float")
    dimensions: int | None = option(Whole(1), "Only the model's own size.")
    prompt_name: str | None = option(Text(), "Prompt of the model that is put before each text; else its default.")
    truncate: bool = option(Flag(), "Truncate texts that are longer than the model reads; false refuses them.", True)
    user: str | None = option(Text(), "Name of the end user.")

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text."""
        return (self.input,) if isinstance(self.input, str) else self.input


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Document to rank."""

    REFUSED: ClassVar[Mapping[str, str]] = {"image": "text only"}

    text: str = required(Text(1), "Text of the document.")


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankRequest:
    """Body of /v1/rerank."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "max_chunks_per_doc": "documents are not cut; cut them before",
        "rank_fields": "text only; leave the field out",
    }

    model: str | None = option(Text(), _MODEL)
    query: str = required(Text(1), "Text that the documents are compared with.")
    documents: tuple[str | Document, ...] = required(
        Items(Either((Text(1), Record(Document))), 1, _MOST_TEXTS), "Documents, as texts or objects with `text`."
    )
    top_n: int | None = option(Whole(1), "Send the best n only.")
    return_documents: bool = option(Flag(), "Send the documents with their scores.", True)
    truncate: bool = option(Flag(), "Truncate texts that are longer than the model reads; false refuses them.", True)

    @property
    def texts(self) -> tuple[str, ...]:
        """Text of every document."""
        return tuple(one if isinstance(one, str) else one.text for one in self.documents)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizeRequest:
    """Body of /tokenize."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    model: str | None = option(Text(), _MODEL)
    prompt: str | None = option(Text(), "Text to cut into tokens; or else messages.")
    messages: tuple[ChatMessage, ...] | None = option(
        Items(Record(ChatMessage), 1), "Messages, which the model's template makes one text of."
    )
    add_special_tokens: bool = option(Flag(), "Add the tokens that the tokenizer puts around a text.", True)
    add_generation_prompt: bool = option(Flag(), "With messages: append the beginning of the answer.", True)
    return_token_strs: bool = option(Flag(), "Send the text of each token too.", False)


@dataclass(frozen=True, kw_only=True, slots=True)
class DetokenizeRequest:
    """Body of /detokenize."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    model: str | None = option(Text(), _MODEL)
    tokens: tuple[int, ...] = required(Items(Whole(0)), "Token ids to write as text.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscriptionRequest:
    """Form of /v1/audio/transcriptions, beside its file."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "chunking_strategy": "long sound is cut where the model ends a segment; leave the field out",
        "include": "log probabilities of transcriptions are not given; leave the field out",
        "known_speaker_names": "speakers are not told apart; leave the field out",
        "known_speaker_references": "speakers are not told apart; leave the field out",
        "prompt": "windows begin without a text before them; leave the field out",
    }

    model: str | None = option(Text(), _MODEL)
    language: str | None = option(Text(1), "Language that is spoken, such as en; it is detected where left out.")
    response_format: TranscriptionFormat = option(
        Choice(("json", "text", "srt", "verbose_json", "vtt")), "Form of the answer.", "json"
    )
    temperature: float = option(Number(0, 0), "Only 0: the likeliest token is taken.", 0.0)
    timestamp_granularities: tuple[str, ...] = option(
        Items(Choice(("segment",)), 0, 1), "Times are of segments, with `verbose_json`.", ()
    )
    stream: bool = option(Choice((False,)), "Transcriptions come at once, so only false.", False)
