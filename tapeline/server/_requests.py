"""Bodies of the API's requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tapeline.running.transcribing import TranscriptionFormat
from tapeline.server._errors import RequestError
from tapeline.server._fields import MOST_ANSWERS, MOST_LOGPROBS, GenerationFields
from tapeline.server._messages import ChatMessage
from tapeline.server._readers import Choice, Either, Flag, Items, Number, Table, Text, Whole
from tapeline.server._records import Record, Unheeded, option, required

_MODEL: Final = "Name of a served model; may be left out if there is only one."
_TOKENS: Final = Items(Whole(0), 1)
_MOST_PROMPTS: Final = 64
_MOST_BEAMS: Final = 16
_MOST_TEXTS: Final = 2048
TEXTS_OR_TOKENS: Final = Either((Text(1), _TOKENS, Items(Text(1), 1, _MOST_TEXTS), Items(_TOKENS, 1, _MOST_TEXTS)))
"""Text or token ids, or a list of such."""
NOT_SUPPORTED: Final[Mapping[str, str]] = {
    "allowed_token_ids": "give structured_outputs, or logit_bias",
    "bad_words": "give logit_bias",
    "grammar": "grammars in GBNF are not read: give structured_outputs.grammar in llguidance's form of Lark",
    "logits_processors": "leave the field out",
}
"""Fields of other servers that change an answer and have no equivalent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest(GenerationFields):
    """Body of /v1/chat/completions."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        **NOT_SUPPORTED,
        "audio": "answers are text; leave the field out",
        "chat_template": "start the server with --chat_template",
        "web_search_options": "nothing is fetched; leave the field out",
    }

    messages: tuple[ChatMessage, ...] = required(Items(Record(ChatMessage), 1), "Messages so far.")
    max_completion_tokens: int | None = option(Whole(-1), "The same as max_tokens.")
    logprobs: bool = option(Flag(), "Send the log probability of each token.", False)
    top_logprobs: int | None = option(Whole(0, MOST_LOGPROBS), "Likeliest tokens to send in each place.")
    tools: tuple[Mapping[str, Any], ...] | None = option(Items(Table()), "Functions that the model may call.")
    tool_choice: str | Mapping[str, Any] | None = option(
        Either((Choice(("none", "auto", "required")), Table())), "Whether to call one, or which."
    )
    parallel_tool_calls: bool = option(Flag(), "Whether an answer may have several calls.", True)
    chat_template_kwargs: Mapping[str, Any] | None = option(Table(most=32), "Further variables of the chat template.")
    add_generation_prompt: bool | None = option(
        Flag(), "False appends no beginning of an answer to the messages; true by default."
    )
    continue_final_message: bool = option(Flag(), "Go on with the last message, and begin no new one.", False)
    reasoning_effort: str | None = option(
        Choice(("none", "minimal", "low", "medium", "high", "xhigh", "max")),
        "Variable of the chat template; none also switches thinking off.",
    )
    enable_thinking: bool | None = option(Flag(), "Variable of the chat template: think before the answer.")
    thinking_token_budget: int | None = option(
        Whole(0), "Number of tokens after which the mark that ends the model's thinking is the next token."
    )
    thinking_budget: int | None = option(Whole(0), "The same as thinking_token_budget.")
    modalities: tuple[str, ...] = option(Items(Choice(("text",))), "Answers are text.", ())
    functions: tuple[Any, ...] = option(Items(Table(), 0, 0), "Only an empty list: give tools.", ())
    function_call: str | None = option(Choice(("none", "auto")), "Accepted without effect: give tool_choice.")
    add_special_tokens: bool = option(
        Unheeded(Flag(), (False,)), "As false: the chat template writes the special tokens.", False
    )

    def check(self) -> None:
        """Checks the fields together.

        Raises:
            RequestError: fields contradict each other.
        """
        GenerationFields.check(self)
        for name in ("max_tokens", "max_completion_tokens"):
            if getattr(self, name) == 0:
                raise RequestError(f"{name}: expected a whole number of at least 1, or -1; found 0", param=name)
        if self.continue_final_message and self.add_generation_prompt:
            raise RequestError(
                "continue_final_message: true contradicts `add_generation_prompt`: true: give one of them",
                param="continue_final_message",
            )
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
        """Largest number of new tokens; None if the request does not say."""
        most = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return None if most == -1 else most

    @property
    def budget(self) -> int | None:
        """Largest number of tokens of the model's thinking; None for unlimited."""
        return self.thinking_budget if self.thinking_token_budget is None else self.thinking_token_budget

    @property
    def alternatives(self) -> int | None:
        """Likeliest tokens to send in each place; None without log probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest(GenerationFields):
    """Body of /v1/completions."""

    REFUSED: ClassVar[Mapping[str, str]] = NOT_SUPPORTED

    prompt: str | tuple[Any, ...] = required(
        Either((Text(1), _TOKENS, Items(Text(1), 1, _MOST_PROMPTS), Items(_TOKENS, 1, _MOST_PROMPTS))),
        "Text or token ids to go on from, or a list of such.",
    )
    suffix: str | None = option(Text(), "Text after the answer, of models that fill in the middle.")
    best_of: int | None = option(
        Whole(1, MOST_ANSWERS),
        "Number of answers that are generated; the n with the best mean log probability are sent.",
    )
    add_special_tokens: bool = option(Flag(), "Add the tokens that the tokenizer puts around a text.", True)
    echo: bool = option(Flag(), "Begin the answer with the prompt.", False)
    logprobs: int | None = option(Whole(0, MOST_LOGPROBS), "Likeliest tokens to send in each place.")
    num_beams: int | None = option(
        Whole(1, _MOST_BEAMS), "Beams of an encoder-decoder's beam search; by default those of the model's files."
    )
    length_penalty: float | None = option(
        Number(-100, 100), "Exponent of an answer's length in its score, of beam search."
    )
    early_stopping: bool | str | None = option(
        Either((Flag(), Choice(("never",)))), "When beam search ends, as transformers has it."
    )
    source_language: str | None = option(Text(1), "Language of the prompt, as an encoder-decoder's tokenizer names it.")
    target_language: str | None = option(Text(1), "Language of the answer.")

    def check(self) -> None:
        """Checks the fields together.

        Raises:
            RequestError: fields contradict each other.
        """
        GenerationFields.check(self)
        if self.max_tokens == 0 and not self.echo and self.prompt_logprobs is None:
            raise RequestError("max_tokens: 0 goes with `echo` or `prompt_logprobs`; give 1", param="max_tokens")
        for name in ("echo", "truncate_prompt_tokens"):
            if self.suffix and getattr(self, name):
                raise RequestError(f"{name}: goes without `suffix`; leave one of them out", param=name)
        if self.count < self.n:
            raise RequestError(f"best_of: expected at least n={self.n}; found {self.best_of}", param="best_of")
        if self.count > self.n and self.stream:
            raise RequestError(
                "best_of: more than `n` goes without `stream`: the best are known at the end", param="best_of"
            )

    @property
    def count(self) -> int:
        """Number of answers that are generated for each prompt."""
        return self.n if self.best_of is None else self.best_of

    @property
    def prompts(self) -> tuple[str | tuple[int, ...], ...]:
        """Every prompt, as text or token ids."""
        if isinstance(self.prompt, str) or isinstance(self.prompt[0], int):
            return (self.prompt,)
        return self.prompt


def inputs_of(given: str | tuple[Any, ...]) -> tuple[str | tuple[int, ...], ...]:
    """Returns every text of a field, as such or as token ids."""
    return (given,) if isinstance(given, str) or isinstance(given[0], int) else given


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingRequest:
    """Body of /v1/embeddings."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    model: str | None = option(Text(), _MODEL)
    input: str | tuple[Any, ...] = required(TEXTS_OR_TOKENS, "Text or token ids to embed, or a list of such.")
    encoding_format: str = option(Choice(("float", "base64")), "Numbers, or the bytes of f32 in base64.", "float")
    dimensions: int | None = option(
        Whole(1), "Number of values of a vector: the first values are kept and scaled to unit length."
    )
    prompt_name: str | None = option(Text(), "Prompt of the model that is put before each text; else its default.")
    truncate: bool = option(Flag(), "Truncate texts that are longer than the model reads; false refuses them.", True)
    user: str | None = option(Text(), "Name of the end user.")

    @property
    def inputs(self) -> tuple[str | tuple[int, ...], ...]:
        """Every text, as such or as token ids."""
        return inputs_of(self.input)


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
class ModelRequest:
    """Body of /models/load and /models/unload."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    model: str = required(Text(1), "Name of a model.")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadAdapterRequest:
    """Body of /v1/load_lora_adapter."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    lora_name: str = required(Text(1), "Name of the adapter.")
    lora_path: str = required(Text(1), "Directory of PEFT, below the directory that the server was started with.")
    model: str | None = option(Text(), "Name of the model; may be left out if one model takes adapters.")
    base_model_name: str | None = option(Text(), "The same as model.")
    load_inplace: bool = option(Choice((False,)), "Only false: unload an adapter before another takes its name.", False)
    is_3d_lora_weight: bool = option(Choice((False,)), "Only false.", False)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnloadAdapterRequest:
    """Body of /v1/unload_lora_adapter."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    lora_name: str = required(Text(1), "Name of the adapter.")
    lora_int_id: int | None = option(Whole(0), "Accepted without effect: adapters have names.")
    model: str | None = option(Text(), "Name of the model; may be left out if one model takes adapters.")


@dataclass(frozen=True, kw_only=True, slots=True)
class TranscriptionRequest:
    """Form of /v1/audio/transcriptions, beside its file."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "chunking_strategy": "long audio is cut at the ends of the model's segments; leave the field out",
        "include": "log probabilities of transcriptions are not given; leave the field out",
        "known_speaker_names": "speakers are not told apart; leave the field out",
        "known_speaker_references": "speakers are not told apart; leave the field out",
        "prompt": "windows begin without a text before them; leave the field out",
    }

    model: str | None = option(Text(), _MODEL)
    language: str | None = option(Text(1), "Language that is spoken, such as en; detected by default.")
    response_format: TranscriptionFormat = option(
        Choice(("json", "text", "srt", "verbose_json", "vtt")), "Form of the answer.", "json"
    )
    temperature: float = option(Number(0, 0), "Only 0: the likeliest token is taken.", 0.0)
    timestamp_granularities: tuple[str, ...] = option(
        Items(Choice(("segment", "word")), 0, 2),
        "Times are of segments; with word, of words, too, in `verbose_json`.",
        (),
    )
    stream: bool = option(Choice((False,)), "Transcriptions come at once, so only false.", False)


@dataclass(frozen=True, kw_only=True, slots=True)
class TranslationRequest(TranscriptionRequest):
    """Form of /v1/audio/translations, beside its file."""

    REFUSED: ClassVar[Mapping[str, str]] = TranscriptionRequest.REFUSED
