"""Fields that requests for text have in common."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from generation import SAMPLING_FIELDS, SamplingConfig
from tapeline.grammar import Choices, LarkGrammar, RegularExpression
from tapeline.server._errors import RequestError
from tapeline.server._formats import AnswerFormat, ResponseFormat, StructuredOutputs, schema_format
from tapeline.server._readers import Anything, Choice, Either, Flag, Items, Number, Table, Text, Whole
from tapeline.server._records import Record, Unheeded, option

MOST_ANSWERS: Final = 16
MOST_STOPS: Final = 16
MOST_LOGPROBS: Final = 20
_MOST_BIASES: Final = 1024
_PENALTY: Final = Number(-2, 2)
_SEED: Final = Whole(-(2**63), 2**64 - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOptions:
    """Options of a streamed answer."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    include_usage: bool = option(Flag(), "Send the usage of tokens in an event of its own, the last one.", False)
    continuous_usage_stats: bool = option(
        Flag(), "With include_usage: send the usage so far in every event, as vLLM does.", False
    )
    include_obfuscation: bool = option(Unheeded(Flag(), (False,)), "Events are not padded.", False)


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingFields:
    """Fields of sampling that OpenAI's API has not on every route, and vLLM has."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    min_tokens: int = option(Whole(0), "Number of new tokens before which no end token and no stop string ends.", 0)
    top_k: int | None = option(Whole(-1), "Only the k likeliest tokens; 0 and -1 take all.")
    min_p: float | None = option(Number(0, 1), "Only tokens at least so likely, relative to the likeliest.")
    repetition_penalty: float | None = option(
        Number(0, above=True), "Above 1 makes tokens of prompt and answer less likely."
    )
    presence_penalty: float = option(_PENALTY, "Taken off the logit of each token of the answer so far.", 0.0)
    frequency_penalty: float = option(_PENALTY, "The same, once for each time that the token came.", 0.0)
    logit_bias: Mapping[str, float] | None = option(
        Table(Number(-100, 100), _MOST_BIASES), "Added to the logits of tokens, by token id."
    )
    seed: int | None = option(_SEED, "Random seed: the same request with the same seed has the same answer.")
    stop: str | tuple[str, ...] | None = option(
        Either((Text(), Items(Text(), 0, MOST_STOPS))), "Strings that end the answer; empty ones have no effect."
    )
    stop_token_ids: tuple[int, ...] = option(
        Items(Whole(0), 0, MOST_STOPS), "Tokens that end the answer, beside the model's own.", ()
    )
    ignore_eos: bool = option(Flag(), "Go on after the model's end token.", False)
    cache_salt: str | None = option(Text(1), "Reuse only prefixes of requests with the same salt, as vLLM does.")


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationFields(SamplingFields):
    """Fields of requests for text."""

    model: str | None = option(Text(), "Name of a served model; may be left out if there is only one.")
    stream: bool = option(Flag(), "Send the answer in pieces, as server-sent events.", False)
    stream_options: StreamOptions | None = option(Record(StreamOptions), "Options of a streamed answer.")
    n: int = option(Whole(1, MOST_ANSWERS), "Number of answers; the i-th has the seed seed + i.", 1)
    max_tokens: int | None = option(Whole(-1), "Largest number of new tokens; -1 for all that fit.")
    temperature: float | None = option(Number(0, 100), "Divisor of the logits; 0 takes the likeliest token.")
    top_p: float | None = option(Number(0, 1), "Only the likeliest tokens that make up p.")
    repeat_penalty: float | None = option(Number(0, above=True), "The same as repetition_penalty.")
    include_stop_str_in_output: bool = option(Flag(), "Send the stop string that ended the answer.", False)
    response_format: ResponseFormat | None = option(Record(ResponseFormat), "Format that the answer is held to.")
    structured_outputs: StructuredOutputs | None = option(
        Record(StructuredOutputs), "The same as vLLM has it: a regular expression, choices, a grammar."
    )
    guided_json: Any = option(Either((Table(), Flag(), Text(1))), "The same as structured_outputs.json.")
    guided_regex: str | None = option(Text(1), "The same as structured_outputs.regex.")
    guided_choice: tuple[str, ...] | None = option(Items(Text(1), 1), "The same as structured_outputs.choice.")
    guided_grammar: str | None = option(Text(1), "The same as structured_outputs.grammar.")
    guided_decoding_backend: str | None = option(Text(), "Accepted without effect.")
    json_schema: Any = option(Either((Table(), Flag())), "The same as structured_outputs.json, as llama-server has it.")
    prompt_logprobs: int | None = option(
        Whole(0, MOST_LOGPROBS), "Likeliest tokens to send for each token of the prompt, with their log probabilities."
    )
    timeout: float | None = option(Number(0, above=True), "Seconds after which the answer is given up.")
    user: str | None = option(Text(), "Name of the end user; users are served in turn.")
    skip_special_tokens: bool = option(Flag(), "False shows special tokens in the text of the answer.", True)
    spaces_between_special_tokens: bool = option(Unheeded(Flag(), (True,)), "Accepted without effect.", True)
    truncate_prompt_tokens: int | None = option(
        Whole(-1), "Keep the last tokens of the prompt only; -1 keeps as many as fit into the context."
    )
    return_token_ids: bool = option(Flag(), "Send the token ids of prompt and answer, as vLLM does.", False)
    cache_prompt: bool = option(Flag(), "False reuses no prefix of other requests.", True)
    use_beam_search: bool = option(Choice((False,)), "Only false: give num_beams to an encoder-decoder.", False)
    metadata: Mapping[str, str] | None = option(Table(Text(), 16), "Accepted without effect: nothing is kept.")
    store: bool = option(Flag(), "Accepted without effect: nothing is kept.", False)
    service_tier: str | None = option(Text(), "Accepted without effect: all requests are served alike.")
    safety_identifier: str | None = option(Text(), "The same as user.")
    prompt_cache_key: str | None = option(Text(), "Accepted without effect: prefixes are shared by content.")
    prompt_cache_options: Any = option(Anything(), "Accepted without effect: prefixes are shared by content.")
    prompt_cache_retention: Any = option(Anything(), "Accepted without effect: prefixes are shared by content.")
    prediction: Any = option(Anything(), "Accepted without effect: an answer does not depend on it.")

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end the answer."""
        stops = (self.stop,) if isinstance(self.stop, str) else self.stop or ()
        return tuple(stop for stop in stops if stop)

    @property
    def count(self) -> int:
        """Number of answers that are generated for each prompt."""
        return self.n

    @property
    def end_user(self) -> str | None:
        """Name of the end user; None if the request has none."""
        return self.safety_identifier if self.user is None else self.user

    @property
    def continuous_usage(self) -> bool:
        """True if every event of a stream has the usage of tokens."""
        return self.include_usage and self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    def include_usage(self) -> bool:
        """True if a stream ends with the usage of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def new_tokens(self) -> int | None:
        """Largest number of new tokens; None if the request does not say."""
        return None if self.max_tokens == -1 else self.max_tokens

    def salt(self, salt: str | None) -> str | None:
        """Returns the salt of the prefix cache for this request; None for a request that reuses nothing.

        Args:
            salt: salt of the client.
        """
        if salt is None or not self.cache_prompt:
            return None
        return salt if self.cache_salt is None else f"{salt}/{self.cache_salt}"

    def check(self) -> None:
        """Checks the fields together.

        Raises:
            RequestError: fields contradict each other.
        """
        if self.include_usage and not self.stream:
            raise RequestError("stream_options: goes with `stream`: true", param="stream_options")
        if self.repeat_penalty not in (None, self.repetition_penalty) and self.repetition_penalty is not None:
            raise RequestError(
                f"repeat_penalty: {self.repeat_penalty} contradicts repetition_penalty={self.repetition_penalty}: give "
                "one of them",
                param="repeat_penalty",
            )
        if self.new_tokens is not None and self.min_tokens > max(1, self.new_tokens):
            raise RequestError(
                f"min_tokens: expected at most max_tokens={self.new_tokens}; found {self.min_tokens}",
                param="min_tokens",
            )
        if self.truncate_prompt_tokens == 0:
            raise RequestError(
                "truncate_prompt_tokens: expected a whole number of at least 1, or -1; found 0",
                param="truncate_prompt_tokens",
            )

    def format(self) -> AnswerFormat | None:
        """Returns the format that the answer is held to; None for any text.

        Raises:
            RequestError: the request gives two formats, or one that contradicts itself.
        """
        formats = {
            "response_format": self.response_format and self.response_format.format(),
            "structured_outputs": self.structured_outputs and self.structured_outputs.format(),
            "guided_json": None if self.guided_json is None else schema_format(self.guided_json, "guided_json"),
            "guided_regex": self.guided_regex and AnswerFormat(RegularExpression(self.guided_regex), "guided_regex"),
            "guided_choice": self.guided_choice and AnswerFormat(Choices(self.guided_choice), "guided_choice"),
            "guided_grammar": self.guided_grammar and AnswerFormat(LarkGrammar(self.guided_grammar), "guided_grammar"),
            "json_schema": None if self.json_schema is None else schema_format(self.json_schema, "json_schema"),
        }
        given = {name: one for name, one in formats.items() if one}
        if len(given) > 1:
            first, second, *_ = given
            raise RequestError(f"{second}: give this or {first}", param=second)
        return next(iter(given.values()), None)

    def sampling(self, defaults: SamplingConfig, vocabulary: int) -> SamplingConfig:
        """Returns the sampling settings of the first answer: the request's fields, and the defaults for the others.

        Args:
            defaults: default sampling of the model.
            vocabulary: size of the vocabulary, V.

        Raises:
            RequestError: a biased token is none of the model's.
        """
        given: dict[str, Any] = {name: getattr(self, name) for name in SAMPLING_FIELDS}
        given = {name: value for name, value in given.items() if value is not None}
        if self.repeat_penalty is not None:
            given["repetition_penalty"] = self.repeat_penalty
        if "top_k" in given:
            given["top_k"] = max(0, given["top_k"])
        return replace(
            defaults,
            **given,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=self._biases(vocabulary),
            seed=secrets.randbits(32) if self.seed is None else self.seed % 2**64,
        )

    def _biases(self, vocabulary: int) -> dict[int, float]:
        biases: dict[int, float] = {}
        for name, bias in (self.logit_bias or {}).items():
            if not (name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < vocabulary):
                raise RequestError(
                    f"logit_bias: expected token ids from 0 to {vocabulary - 1} as keys; found {name[:20]!r}",
                    param="logit_bias",
                )
            biases[int(name)] = bias
        return biases
