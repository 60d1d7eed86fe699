"""/v1/chat/completions."""

import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from tapeline.server._answer_text import Delta
from tapeline.server._answers import Answer
from tapeline.server._generation import Job, respond
from tapeline.server._logprobs import chat_logprobs, prompt_logprobs
from tapeline.server._model import TextModel
from tapeline.server._requests import ChatRequest
from tapeline.server._service import in_thread, service_of


async def chat_completions(request: Request) -> Response:
    """Answers a conversation."""
    service = service_of(request)
    fields = await service.read(request, ChatRequest)
    fields.check()
    model = service.models.text_model(fields.model)
    prompt = await in_thread(model.chat_ids, fields.messages, fields.chat_template_kwargs)
    state = request.scope["state"]
    job = Job(
        model=model,
        fields=fields,
        prompts=[prompt],
        max_new_tokens=None,
        ends=model.chat_ends,
        logprobs=fields.alternatives,
        prompt_logprobs=fields.prompt_logprobs,
        starts=[0],
        client=state["client"](fields.user),
        request_id=state["request_id"],
        seconds=service.options.request_seconds,
    )
    return await respond(request, job, ChatForm(model, fields, prompt, state["request_id"]))


class ChatForm:
    """Form of answers in a conversation.

    Args:
        model: makes the answers.
        fields: what the request says.
        prompt: tokens of the conversation.
        request_id: name of the request.
    """

    def __init__(self, model: TextModel, fields: ChatRequest, prompt: Sequence[int], request_id: str) -> None:
        self._model: Final = model
        self._fields: Final = fields
        self._prompt: Final = prompt
        self._head: Final = {"id": f"chatcmpl-{request_id}", "created": int(time.time()), "model": model.name}
        self._begun: Final = set[int]()

    def chunk(self, answer: Answer, delta: Delta) -> Mapping[str, Any] | None:
        """Returns an event of a part of an answer; None where nothing is in it."""
        if not delta.text and not delta.tokens and answer.finish_reason is None:
            return None
        message: dict[str, Any] = {"content": delta.text} if delta.text else {}
        if answer.index not in self._begun:
            self._begun.add(answer.index)
            message = {"role": "assistant", "content": delta.text}
        choice = {
            "index": answer.index,
            "delta": message,
            "logprobs": self._logprobs([delta]) if delta.tokens else None,
            "finish_reason": answer.finish_reason,
        }
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def whole(self, answers: Sequence[Answer], parts: Sequence[Sequence[Delta]]) -> Mapping[str, Any]:
        """Returns the whole of all answers."""
        choices = [self._choice(answer, deltas) for answer, deltas in zip(answers, parts, strict=True)]
        return {**self._head, "object": "chat.completion", "choices": choices, **self._of_prompt(answers[0])}

    def last(self, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the event with the usage of tokens."""
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def _choice(self, answer: Answer, deltas: Sequence[Delta]) -> dict[str, Any]:
        text = "".join(delta.text for delta in deltas)
        return {
            "index": answer.index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._logprobs(deltas),
            "finish_reason": answer.finish_reason,
        }

    def _logprobs(self, deltas: Sequence[Delta]) -> dict[str, Any] | None:
        if not self._fields.logprobs:
            return None
        return chat_logprobs(chain.from_iterable(delta.tokens for delta in deltas), self._model.tokenizer)

    def _of_prompt(self, answer: Answer) -> dict[str, Any]:
        if self._fields.prompt_logprobs is None or answer.prompt is None or answer.prompt.logprobs is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(answer.prompt.logprobs, self._model.tokenizer)}
