"""/v1/completions."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from generation.engine import TokenEvent
from tapeline.server._answer_text import Delta, PlacedToken
from tapeline.server._answers import Answer
from tapeline.server._compiling import FormatOrigin, bounds_numbers, compiled
from tapeline.server._fields import GenerationFields
from tapeline.server._generation import Job, respond
from tapeline.server._infilling import infill_ids, infill_tokens
from tapeline.server._lengths import check_length
from tapeline.server._logprobs import completion_logprobs, prompt_logprobs
from tapeline.server._model import TextModel
from tapeline.server._requests import CompletionRequest
from tapeline.server._service import in_thread, model_of, service_of
from tapeline.server._text_to_text import answer_texts, refuse_search
from tapeline.server._text_to_text_model import TextToTextModel
from tapeline.text import InfillTokens

F = TypeVar("F", bound=GenerationFields)

_NEW_TOKENS: Final = 16  # OpenAI's default


async def completions(request: Request) -> Response:
    """Goes on from texts."""
    service = service_of(request)
    fields = await service.read(request, CompletionRequest)
    fields.check()
    model = await model_of(request, service.models.completing_model, fields.model)
    if isinstance(model, TextToTextModel):
        return await answer_texts(request, fields, model)
    refuse_search(request, fields)
    model.engine.check_room(len(fields.prompts) * fields.count)
    async with service.turn(request):
        prompts = [await in_thread(_prompt_ids, model, fields, prompt) for prompt in fields.prompts]
    echoes = [_echo(model, text, ids) if fields.echo else "" for text, ids in zip(fields.prompts, prompts, strict=True)]
    state = request.scope["state"]
    job = Job(
        model=model,
        fields=fields,
        prompts=prompts,
        max_new_tokens=None if fields.max_tokens == -1 else _NEW_TOKENS,
        ends=model.ends | (infill_tokens(model, "suffix").ends if fields.suffix else frozenset()),
        logprobs=0 if fields.logprobs is None and fields.count > fields.n else fields.logprobs,
        prompt_logprobs=_of_prompt(fields),
        starts=[len(echo) for echo in echoes],
        client=state["client"](fields.end_user),
        cache_salt=state["cache_salt"],
        request_id=state["request_id"],
        seconds=service.options.request_seconds,
    )
    job.check()
    job = await constrained(request, job)
    return await respond(request, job, CompletionForm(model, fields, prompts, echoes, state["request_id"]))


async def constrained(request: Request, job: Job[F]) -> Job[F]:
    """Returns a job with answers constrained to the format of its request.

    Raises:
        RequestError: the format is damaged, too large or too complex, or cannot be held to.
    """
    service, state, form = service_of(request), request.scope["state"], job.fields.format()
    service.loosen(request, () if form is None else [f"{form.param}{place}" for place in form.loosened])
    spec, origin = (None, FormatOrigin(param="")) if form is None else (form.spec, FormatOrigin.of(form))
    constraints = await compiled(
        spec,
        job.model,
        len(job.prompts) * job.fields.count,
        job.ends,
        service.options,
        service.compiling,
        state["client"](None),
        state["cache_salt"],
        origin,
    )
    return replace(job, constraints=constraints, bounded=bounds_numbers(spec))


def _of_prompt(fields: CompletionRequest) -> int | None:
    """Returns the number of likeliest tokens to ask for in each place of the prompt; None for none."""
    wanted = (fields.prompt_logprobs, fields.logprobs if fields.echo else None)
    return max((one for one in wanted if one is not None), default=None)


def _prompt_ids(model: TextModel, fields: CompletionRequest, prompt: str | Sequence[int]) -> list[int]:
    if fields.suffix:
        return _with_gap(model, infill_tokens(model, "suffix"), fields, prompt, fields.suffix)
    most = model.kept_tokens(fields.truncate_prompt_tokens, fields.new_tokens or _NEW_TOKENS)
    return model.prompt_ids(prompt, special_tokens=fields.add_special_tokens, most=most)


def _with_gap(
    model: TextModel, tokens: InfillTokens, fields: CompletionRequest, prompt: str | Sequence[int], suffix: str
) -> list[int]:
    """Returns the tokens of a prompt that a suffix follows."""
    for name, text in (("prompt", prompt), ("suffix", suffix)):
        check_length(len(text), model.context, name)

    def encoded(text: str) -> list[int]:
        return model.tokenizer.encode_literal(text, model.vocabulary)

    before = encoded(prompt) if isinstance(prompt, str) else prompt
    begin = model.tokenizer.begin_ids() if fields.add_special_tokens and isinstance(prompt, str) else []
    return infill_ids(model, tokens, before, encoded(suffix), begin)


def _echo(model: TextModel, prompt: str | Sequence[int], ids: Sequence[int]) -> str:
    return prompt if isinstance(prompt, str) else model.tokenizer.decode(ids)


class CompletionForm:
    """Form of answers to texts.

    Args:
        model: makes the answers.
        fields: fields of the request.
        prompts: tokens of each prompt.
        echoes: text of each prompt, if the answer is to begin with it; else empty.
        request_id: name of the request.
    """

    def __init__(
        self,
        model: TextModel,
        fields: CompletionRequest,
        prompts: Sequence[Sequence[int]],
        echoes: Sequence[str],
        request_id: str,
    ) -> None:
        self._model: Final = model
        self._fields: Final = fields
        self._prompts: Final = prompts
        self._echoes: Final = echoes
        self._head: Final = {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.name,
        }
        self._begun: Final = set[int]()
        self._sent: Final[dict[int, int]] = {}  # token ids that were sent

    def read(self, answer: Answer, delta: Delta) -> None:
        """Reads nothing: a text is used unchanged."""

    def chunk(self, answer: Answer, delta: Delta) -> Mapping[str, Any] | None:
        """Returns an event of a part of an answer; None if nothing is in it."""
        if answer.prompt is None and answer.finish_reason is None:
            return None
        echo, tokens = self._new(answer, delta)
        text = echo + self._text(delta)
        if not text and not tokens and answer.finish_reason is None:
            return None
        return {**self._head, "choices": [self._choice(answer, text, tokens)]}

    def whole(self, answers: Sequence[Answer], parts: Sequence[Sequence[Delta]]) -> Mapping[str, Any]:
        """Returns the whole of all answers."""
        choices = [self._whole(*one) for one in self._best(list(zip(answers, parts, strict=True)))]
        return {**self._head, "choices": [{**choice, "index": index} for index, choice in enumerate(choices)]}

    def last(self, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the event with the usage of tokens."""
        return {**self._head, "choices": [], "usage": usage}

    def _best(self, answers: list[tuple[Answer, Sequence[Delta]]]) -> list[tuple[Answer, Sequence[Delta]]]:
        """Returns the answers to send: of each prompt's, the n with the best mean log probability."""
        count, kept = self._fields.count, self._fields.n
        if count == kept:
            return answers
        groups = [answers[start : start + count] for start in range(0, len(answers), count)]
        return [one for group in groups for one in sorted(group, key=lambda one: -_mean_logprob(one[1]))[:kept]]

    def _whole(self, answer: Answer, deltas: Sequence[Delta]) -> dict[str, Any]:
        echo, tokens = self._new(answer, *deltas)
        choice = self._choice(answer, echo + "".join(map(self._text, deltas)), tokens)
        if self._fields.prompt_logprobs is not None and answer.prompt and answer.prompt.logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(answer.prompt.logprobs, self._model.tokenizer)
        return choice

    def _new(self, answer: Answer, *deltas: Delta) -> tuple[str, list[PlacedToken]]:
        """Returns the echo, the first time that it is asked for, and the tokens of it and of these parts."""
        begins = answer.index not in self._begun
        self._begun.add(answer.index)
        tokens = [token for delta in deltas for token in delta.tokens if self._fields.max_tokens != 0]
        if not begins or not self._fields.echo:
            return "", tokens
        return self._echoes[answer.index // self._fields.count], [*self._echoed(answer), *tokens]

    def _echoed(self, answer: Answer) -> Iterator[PlacedToken]:
        """Yields the tokens of the prompt, with the place of their text; the first lacks a log probability."""
        prompt = self._prompts[answer.index // self._fields.count]
        logprobs = (answer.prompt.logprobs if answer.prompt else None) or ()
        pieces = self._model.tokenizer.stream()
        offset = 0
        for token_id, event in zip(prompt, logprobs, strict=False):
            yield PlacedToken(event or TokenEvent(token_id), offset)
            offset += len(pieces.push(token_id))

    def _text(self, delta: Delta) -> str:
        """Returns the text of a part; that of the one token which the engine makes for ``max_tokens`` 0 is dropped."""
        return "" if self._fields.max_tokens == 0 else delta.text

    def _choice(self, answer: Answer, text: str, tokens: Sequence[PlacedToken]) -> dict[str, Any]:
        wanted = self._fields.logprobs is not None
        return {
            "index": answer.index,
            "text": text,
            "logprobs": completion_logprobs(tokens, self._model.tokenizer) if wanted else None,
            "finish_reason": answer.finish_reason,
            **self._token_ids(answer),
        }

    def _token_ids(self, answer: Answer) -> dict[str, Any]:
        """Returns the new token ids of an answer, and the first time those of the prompt, if they are asked for."""
        if not self._fields.return_token_ids:
            return {}
        sent = self._sent.get(answer.index)
        new = [] if self._fields.max_tokens == 0 else answer.text.token_ids[sent or 0 :]
        self._sent[answer.index] = (sent or 0) + len(new)
        prompt = {"prompt_token_ids": list(self._prompts[answer.index // self._fields.count])} if sent is None else {}
        return {**prompt, "token_ids": new}


def _mean_logprob(deltas: Sequence[Delta]) -> float:
    """Returns the mean log probability of an answer's tokens."""
    logprobs = [token.event.logprob or 0.0 for delta in deltas for token in delta.tokens]
    return sum(logprobs) / max(1, len(logprobs))
