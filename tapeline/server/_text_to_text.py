"""/v1/completions of encoder-decoders: the answer to a text comes when it is whole."""

import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import fields as fields_of
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from generation import SamplingConfig
from tapeline.server._errors import RequestError
from tapeline.server._events import EventStream, to_json
from tapeline.server._generation import JSON
from tapeline.server._gone import unless_gone
from tapeline.server._lengths import check_length
from tapeline.server._records import fields_of as record_fields
from tapeline.server._requests import CompletionRequest
from tapeline.server._service import note, service_of
from tapeline.server._text_to_text_model import TextAnswer, TextToTextModel

_UNSUPPORTED: Final = (
    "n",
    "best_of",
    "suffix",
    "echo",
    "logprobs",
    "prompt_logprobs",
    "logit_bias",
    "min_tokens",
    "stop_token_ids",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "add_special_tokens",
    "truncate_prompt_tokens",
    "return_token_ids",
)
_SAME_AS_NONE: Final = ("", (), {})
_SEARCH: Final = ("num_beams", "length_penalty", "early_stopping", "source_language", "target_language")
_REASONS: Final = {"eos": "stop", "stop": "stop", "length": "length"}


async def answer_texts(request: Request, fields: CompletionRequest, model: TextToTextModel) -> Response:
    """Answers the prompts of a request, as ``LoadedModel.generate`` does.

    Raises:
        RequestError: a field cannot be honoured, or the answers take too long.
        InputError: a prompt does not fit, or fields contradict each other.
    """
    service, began = service_of(request), time.monotonic()
    options = _options(fields, model)
    for prompt in fields.prompts:
        check_length(len(prompt), model.context, "prompt")
    longest = service.options.request_seconds
    answering = model.answer(fields.prompts, options, min(longest, fields.timeout or longest))
    answers = await unless_gone(request.receive, answering)
    usage = _usage(answers)
    reasons = [_REASONS[answer.ended or "length"] for answer in answers]
    for answer, reason in zip(answers, reasons, strict=True):
        seconds = time.monotonic() - began
        service.metrics.answered_whole(model.name, answer.prompt_tokens, answer.tokens, reason, seconds)
    note(
        request,
        model=model.name,
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        finish_reasons=reasons,
    )
    body = {
        "id": f"cmpl-{request.scope['state']['request_id']}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model.name,
        "choices": [
            {"index": index, "text": answer.text, "logprobs": None, "finish_reason": reason}
            for index, (answer, reason) in enumerate(zip(answers, reasons, strict=True))
        ],
    }
    if fields.stream:
        return EventStream(_events(fields, body, usage))
    return Response(to_json({**body, "usage": usage}), media_type=JSON)


def refuse_search(request: Request, fields: CompletionRequest) -> None:
    """Refuses or ignores the fields of encoder-decoders in a request to another model.

    Raises:
        RequestError: a field would change the answer, or the server refuses ignored fields.
    """
    for name in ("num_beams", "source_language", "target_language"):
        if getattr(fields, name) not in ((None, 1) if name == "num_beams" else (None,)):
            raise RequestError(
                f"{name}: for encoder-decoders of texts (T5, BART, Marian, NLLB, ...): leave the field out",
                param=name,
                code="unsupported_parameter",
            )
    given = [name for name in ("length_penalty", "early_stopping") if getattr(fields, name) is not None]
    service_of(request).ignore(request, dict.fromkeys(given, "for beam search of encoder-decoders"))


def _options(fields: CompletionRequest, model: TextToTextModel) -> dict[str, Any]:
    """Returns the fields as options of ``LoadedModel.generate``; without sampling, the likeliest tokens are taken.

    Raises:
        RequestError: a field cannot be honoured.
    """
    form = fields.format()
    given = [name for name in _UNSUPPORTED if getattr(fields, name) not in (_default(name), *_SAME_AS_NONE)]
    given = [name for name in given if (name, fields.best_of) != ("best_of", 1)]
    if form is not None:
        given.append(form.param)
    if given:
        raise RequestError(
            f"{given[0]}: encoder-decoders do not support it, found {getattr(fields, given[0], None)!r:.60}: leave the "
            "field out",
            param=given[0],
            code="unsupported_parameter",
        )
    sampling = fields.sampling(SamplingConfig(), model.reader.vocabulary)
    return {
        **{one.name: getattr(sampling, one.name) for one in fields_of(sampling)},
        "max_new_tokens": fields.new_tokens,
        "ignore_eos": fields.ignore_eos,
        "stop": list(fields.stops) or None,
        **{name: getattr(fields, name) for name in _SEARCH},
    }


def _default(name: str) -> Any:
    return record_fields(CompletionRequest)[name].default


def _usage(answers: list[TextAnswer]) -> dict[str, Any]:
    prompt, generated = (sum(getattr(one, name) for one in answers) for name in ("prompt_tokens", "tokens"))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def _events(
    fields: CompletionRequest, body: Mapping[str, Any], usage: Mapping[str, Any]
) -> AsyncGenerator[Mapping[str, Any], None]:
    """Yields the whole answer as one event, and its usage if the request asks for it."""
    running = {"usage": usage if fields.continuous_usage else None} if fields.include_usage else {}
    yield {**body, **running}
    if fields.include_usage:
        yield {**body, "choices": [], "usage": usage}
