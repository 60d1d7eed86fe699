"""/infill, as llama-server has it: text for the gap between a prefix and a suffix."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar, Final

from starlette.requests import Request
from starlette.responses import Response

from generation import SAMPLING_FIELDS
from tapeline.server._answer_text import Delta
from tapeline.server._answers import Answer
from tapeline.server._completions import constrained
from tapeline.server._errors import RequestError
from tapeline.server._events import BareEventStream
from tapeline.server._fields import GenerationFields
from tapeline.server._generation import Job, respond_events
from tapeline.server._infilling import infill_ids, infill_tokens
from tapeline.server._lengths import check_length
from tapeline.server._model import TextModel
from tapeline.server._readers import Anything, Flag, Items, Number, Text, Whole
from tapeline.server._records import Record, Unheeded, option, required
from tapeline.server._requests import NOT_SUPPORTED
from tapeline.server._service import in_thread, model_of, service_of
from tapeline.text import InfillTokens

_MOST_EXTRA: Final = 1024
_PROJECT: Final = "myproject\n"
_FILE: Final = "filename\n"  # of the text with the gap
_SNIPPET: Final = "\n\n--- snippet ---\n\n"  # before each extra text, if the model has no token for files


@dataclass(frozen=True, kw_only=True, slots=True)
class InfillExtra:
    """Further text that belongs to the one with the gap."""

    REFUSED: ClassVar[Mapping[str, str]] = {}

    text: str = option(Text(), "The text.", "")
    filename: str = option(Text(), "Name of its file.", "tmp")


@dataclass(frozen=True, kw_only=True, slots=True)
class InfillRequest(GenerationFields):
    """Body of /infill."""

    REFUSED: ClassVar[Mapping[str, str]] = NOT_SUPPORTED

    input_prefix: str = required(Text(), "Text before the gap.")
    input_suffix: str = required(Text(), "Text after the gap.")
    input_extra: tuple[InfillExtra, ...] = option(
        Items(Record(InfillExtra), 0, _MOST_EXTRA),
        "Texts of other files; the last ones that fit are read.",
        (),
    )
    prompt: str = option(Text(), "Text after the prefix, which the answer goes on from.", "")
    n: int = option(Whole(1, 1), "Only 1.", 1)
    n_predict: int | None = option(Whole(-1), "The same as max_tokens; 0 reads the prompt and answers nothing.")
    n_indent: int = option(
        Whole(0), "Characters of indentation that each line after the first has; a line with fewer ends the answer.", 0
    )
    t_max_predict_ms: int = option(
        Whole(0), "Milliseconds after the first token that end an answer of several lines; 0 for no limit.", 0
    )
    response_fields: tuple[str, ...] | None = option(
        Items(Text(1), 0, 64), "Fields of the body to send, such as content or timings/predicted_ms; all by default."
    )
    return_tokens: bool = option(Flag(), "Send the token ids of the answer.", False)
    id_slot: int = option(Whole(-1), "Accepted without effect: requests have any slot.", -1)
    t_max_prompt_ms: float | None = option(Unheeded(Number(0)), "Named in x-ignored-fields.")
    samplers: Any = option(Unheeded(Anything()), "Named in x-ignored-fields: the samplers have one order.")

    def check(self) -> None:
        """Checks the fields together.

        Raises:
            RequestError: fields contradict each other.
        """
        GenerationFields.check(self)
        if self.max_tokens is not None and self.n_predict not in (None, self.max_tokens):
            raise RequestError(
                f"n_predict: {self.n_predict} contradicts max_tokens={self.max_tokens}: give one of them",
                param="n_predict",
            )

    @property
    def new_tokens(self) -> int | None:
        """Largest number of new tokens; None for all that fit."""
        most = self.max_tokens if self.n_predict is None else self.n_predict
        return None if most == -1 else most


async def infill(request: Request) -> Response:
    """Answers with the text of a gap."""
    service = service_of(request)
    fields = await service.read(request, InfillRequest)
    fields.check()
    model = await model_of(request, service.models.text_model, fields.model)
    model.engine.check_room(1)
    tokens = infill_tokens(model, "input_suffix")
    for name in ("input_prefix", "input_suffix", "prompt"):
        check_length(len(getattr(fields, name)), model.context, name)
    check_length(sum(len(one.text) + len(one.filename) for one in fields.input_extra), model.context, "input_extra")
    async with service.turn(request):
        prompt, truncated = await in_thread(_prompt, model, tokens, fields)
    state = request.scope["state"]
    job = Job(
        model=model,
        fields=fields,
        prompts=[prompt],
        max_new_tokens=None,
        ends=model.ends | tokens.ends,
        logprobs=None,
        prompt_logprobs=None,
        starts=[0],
        client=state["client"](fields.end_user),
        cache_salt=state["cache_salt"],
        request_id=state["request_id"],
        seconds=service.options.request_seconds,
    )
    job.check()
    job = await constrained(request, job)
    return await respond_events(request, job, InfillForm(job, fields, truncated), BareEventStream)


def _prompt(model: TextModel, tokens: InfillTokens, fields: InfillRequest) -> tuple[list[int], bool]:
    """Returns the tokens of a request, and whether some were left out: the farthest from the gap, if they do not fit.

    The prefix has three quarters of the context, and the suffix a quarter, or the rest after the prefix.
    """
    begin = model.tokenizer.begin_ids()
    prefix, suffix, prompt = (
        model.tokenizer.encode_literal(text, model.vocabulary)
        for text in (fields.input_prefix, fields.input_suffix, fields.prompt)
    )
    extra = _extra(model, tokens, fields.input_extra)
    new = model.context // 4 if fields.new_tokens is None else max(1, fields.new_tokens)
    room = max(0, model.context + 1 - new - len(begin) - len(prompt) - 3)
    before = prefix[len(prefix) - min(len(prefix), max(room - len(suffix), room * 3 // 4)) :]
    after = suffix[: room - len(before)]
    others = extra[max(0, len(extra) - (room - len(before) - len(after))) :]
    whole = len(before) + len(after) + len(others) == len(prefix) + len(suffix) + len(extra)
    return infill_ids(model, tokens, [*before, *prompt], after, [*begin, *others]), not whole


def _extra(model: TextModel, tokens: InfillTokens, texts: Sequence[InfillExtra]) -> list[int]:
    """Returns the tokens of texts of other files, in the form of Qwen's repositories."""
    if not texts:
        return []

    def encoded(text: str) -> list[int]:
        return model.tokenizer.encode_literal(text, model.vocabulary)

    ids = [] if tokens.repository is None else [tokens.repository, *encoded(_PROJECT)]
    for one in texts:
        ids += encoded(_SNIPPET) if tokens.file is None else [tokens.file, *encoded(f"{one.filename}\n")]
        ids += encoded(one.text)
    return ids if tokens.file is None else [*ids, tokens.file, *encoded(_FILE)]


@dataclass(slots=True)
class LineRules:
    """Rules that end a text at its lines.

    Attributes:
        indent: characters of indentation that lines after the first have, unless they are empty.
        seconds: time after the first token that ends a text of several lines; None for unlimited.
        has_new_line: True once the text has several lines.
    """

    indent: int = 0
    seconds: float | None = None
    has_new_line: bool = False
    _spaces: int | None = None  # of a line that has nothing else so far
    _began: float | None = field(default=None)

    def push(self, text: str, now: float) -> tuple[str, bool]:
        r"""Returns the part of the next text that belongs to the answer, and whether the answer ends there.

        >>> LineRules(indent=2).push("a\n  b\n c", 0.0)
        ('a\n  b\n ', True)
        """
        self._began = now if self._began is None else self._began
        for index, letter in enumerate(text):
            if letter == "\n":
                self.has_new_line, self._spaces = True, 0
            elif self._spaces is not None and letter in " \t":
                self._spaces += 1
            elif self._spaces is not None:
                if self._spaces < self.indent:
                    return text[:index], True
                self._spaces = None
        late = self.seconds is not None and now - self._began > self.seconds
        return text, late and self.has_new_line


class InfillForm:
    """Form of llama-server's answers.

    Args:
        job: work for the engine.
        fields: the request.
        truncated: True if the prompt lacks a part of the request's text.
    """

    def __init__(self, job: Job[InfillRequest], fields: InfillRequest, truncated: bool) -> None:
        self._job: Final = job
        self._fields: Final = fields
        self._truncated: Final = truncated
        self._lines: Final = LineRules(fields.n_indent, fields.t_max_predict_ms / 1000 or None)
        self._text: Final[list[str]] = []
        self._began: Final = perf_counter()

    def begin(self) -> Iterator[Mapping[str, Any]]:
        """Yields nothing: a stream begins with text."""
        yield from ()

    def events(self, answer: Answer, delta: Delta) -> Iterator[Mapping[str, Any]]:
        """Yields the event of a part of the answer, if it has text."""
        text = "" if self._fields.new_tokens == 0 else delta.text
        if not text:
            return
        text, ended = self._lines.push(text, perf_counter())
        if ended and answer.finish_reason is None:
            answer.finish_reason = "length"
        self._text.append(text)
        count = answer.text.tokens
        evaluated = self._job.prompt_tokens
        yield {
            "index": 0,
            "content": text,
            "tokens": answer.text.token_ids[-1:] if self._fields.return_tokens else [],
            "stop": False,
            "tokens_predicted": count,
            "tokens_evaluated": evaluated,
        }

    def end(self, answer: Answer, usage: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yields the last event, which has all but the text."""
        yield self._shown({**self._whole(answer, usage), "content": "", "tokens": []})

    def body(self, answer: Answer, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the whole of the answer."""
        return self._shown(self._whole(answer, usage))

    def _whole(self, answer: Answer, usage: Mapping[str, Any]) -> dict[str, Any]:
        model = self._job.model
        predicted = usage["completion_tokens"]
        stop = "limit" if answer.finish_reason == "length" else "eos" if answer.stop is None else "word"
        return {
            "index": 0,
            "content": "".join(self._text),
            "tokens": answer.text.token_ids[:predicted] if self._fields.return_tokens else [],
            "stop": True,
            "model": model.name,
            "tokens_predicted": predicted,
            "tokens_evaluated": usage["prompt_tokens"],
            "tokens_cached": usage["prompt_tokens"] + predicted,
            "generation_settings": self._settings(),
            "prompt": model.tokenizer.decode(self._job.prompts[0], special_tokens=True),
            "has_new_line": self._lines.has_new_line,
            "truncated": self._truncated,
            "stop_type": stop,
            "stopping_word": answer.stop or "",
            "timings": self._timings(answer, usage),
        }

    def _settings(self) -> dict[str, Any]:
        sampling = self._fields.sampling(self._job.model.defaults, self._job.model.vocabulary)
        new = -1 if self._fields.new_tokens is None else self._fields.new_tokens
        return {
            "n_ctx": self._job.model.context,
            "n_predict": new,
            "stop": list(self._fields.stops),
            "stream": self._fields.stream,
            **{name: getattr(sampling, name) for name in SAMPLING_FIELDS},
        }

    def _timings(self, answer: Answer, usage: Mapping[str, Any]) -> dict[str, Any]:
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        first = answer.times[0] if answer.times else perf_counter()
        last = answer.times[-1] if answer.times else first
        return {
            "cache_n": cached,
            **_pace("prompt", usage["prompt_tokens"] - cached, first - self._began),
            **_pace("predicted", usage["completion_tokens"], last - first),
        }

    def _shown(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the fields that the request asks for, under the names that it has for them."""
        if self._fields.response_fields is None:
            return body
        shown: dict[str, Any] = {}
        for path in self._fields.response_fields:
            value: Any = body
            for key in path.split("/"):
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is not None:
                shown[path] = value
        return shown


def _pace(name: str, count: int, seconds: float) -> dict[str, Any]:
    """Returns the time of some tokens, as llama-server states it."""
    return {
        f"{name}_n": count,
        f"{name}_ms": 1000 * seconds,
        f"{name}_per_token_ms": 1000 * seconds / max(1, count),
        f"{name}_per_second": count / seconds if seconds > 0 else 0.0,
    }
