"""Fields that requests for text have in common."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from generation import SAMPLING_FIELDS, SamplingConfig
from tapeline.grammar import GrammarSpec
from tapeline.server._errors import RequestError
from tapeline.server._formats import ResponseFormat, StructuredOutputs
from tapeline.server._readers import Choice, Either, Flag, Items, Number, Table, Text, Whole
from tapeline.server._records import Record, option

MOST_ANSWERS: Final = 16
MOST_STOPS: Final = 16
MOST_LOGPROBS: Final = 20
_MOST_BIASES: Final = 1024
_PENALTY: Final = Number(-2, 2)
_SEED: Final = Whole(-(2**63), 2**64 - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOptions:
    """Options of a streamed answer."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "include_obfuscation": "events are sent as they are; leave the field out",
        "continuous_usage_stats": "usage is sent once, in the last event; give include_usage",
    }

    include_usage: bool = option(Flag(), "Send the usage of tokens in an event of its own, the last one.", False)


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationFields:
    """Fields of requests for text."""

    model: str | None = option(Text(), "Name of a model that is served; may be left out where there is one.")
    stream: bool = option(Flag(), "Send the answer in pieces, as server-sent events.", False)
    stream_options: StreamOptions | None = option(Record(StreamOptions), "Options of a streamed answer.")
    n: int = option(Whole(1, MOST_ANSWERS), "Number of answers; the i-th has the seed seed + i.", 1)
    max_tokens: int | None = option(Whole(0), "Largest number of new tokens.")
    temperature: float | None = option(Number(0, 100), "Divisor of the logits; 0 takes the likeliest token.")
    top_p: float | None = option(Number(0, 1), "Only the likeliest tokens that make up p.")
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
        Either((Text(1), Items(Text(1), 0, MOST_STOPS))), "Strings that end the answer; they are not sent."
    )
    stop_token_ids: tuple[int, ...] = option(
        Items(Whole(0), 0, MOST_STOPS), "Tokens that end the answer, beside the model's own.", ()
    )
    response_format: ResponseFormat | None = option(Record(ResponseFormat), "Format that the answer is held to.")
    structured_outputs: StructuredOutputs | None = option(
        Record(StructuredOutputs), "The same as vLLM has it: a regular expression, choices, a grammar."
    )
    ignore_eos: bool = option(Flag(), "Go on after the model's end token.", False)
    prompt_logprobs: int | None = option(
        Whole(0, MOST_LOGPROBS), "Likeliest tokens to send for each token of the prompt, with their log probabilities."
    )
    timeout: float | None = option(Number(0, above=True), "Seconds after which the answer is given up.")
    user: str | None = option(Text(), "Name of the end user; users are served in turn.")
    metadata: Mapping[str, str] | None = option(Table(Text(), 16), "Taken as OpenAI's clients send it; not kept.")
    store: bool = option(Choice((False,)), "Nothing is kept, so only false.", False)

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end the answer."""
        return (self.stop,) if isinstance(self.stop, str) else self.stop or ()

    @property
    def include_usage(self) -> bool:
        """True where a stream ends with the usage of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def new_tokens(self) -> int | None:
        """Largest number of new tokens; None where the request does not say."""
        return self.max_tokens

    def check(self) -> None:
        """Checks what one field alone cannot say.

        Raises:
            RequestError: fields contradict each other.
        """
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options: goes with `stream`: true", param="stream_options")

    def format_spec(self) -> GrammarSpec | None:
        """Returns the grammar that the answer is held to; None for any text.

        Raises:
            RequestError: the request gives two formats, or one that contradicts itself.
        """
        given = [one.spec() for one in (self.response_format, self.structured_outputs) if one is not None]
        if len(given) > 1:
            raise RequestError("structured_outputs: give this or response_format", param="structured_outputs")
        return given[0] if given else None

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
