"""Answers in a conversation, in the form of the API: text, reasoning, calls of tools."""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from tapeline.server._answer_text import Delta
from tapeline.server._answers import Answer
from tapeline.server._generation import Job
from tapeline.server._logprobs import chat_logprobs, prompt_logprobs
from tapeline.server._model import TextModel
from tapeline.server._requests import ChatRequest
from tapeline.text import StopText
from tapeline.toolcalls import (
    AnswerDelta,
    AnswerParser,
    CallDelta,
    ParsedAnswer,
    PlainParser,
    ReasoningDelta,
    TextDelta,
    ToolPlan,
)

_SPACES: Final = 4  # tokens of line ends after a mark


class ChatForm:
    """Form of answers in a conversation.

    Args:
        model: makes the answers.
        job: work of the request.
        plan: how calls of tools are read out of the answers.
    """

    def __init__(self, model: TextModel, job: Job[ChatRequest], plan: ToolPlan | None) -> None:
        self._model: Final = model
        self._fields: Final = job.fields
        self._prompt: Final = job.prompts[0]
        self._head: Final = {"id": f"chatcmpl-{job.request_id}", "created": int(time.time()), "model": model.name}
        self._readers: Final = [AnswerReader(job, plan) for _ in range(job.fields.n)]
        self._begun: Final = set[int]()
        self._sent: Final[dict[int, int]] = {}  # token ids that were sent

    def read(self, answer: Answer, delta: Delta) -> None:
        """Reads a part of an answer; a stop string in its text ends it."""
        self._readers[answer.index].read(answer, delta)

    def chunk(self, answer: Answer, delta: Delta) -> Mapping[str, Any] | None:
        """Returns an event of a part of an answer; None if nothing is in it."""
        message = _message_delta(self._readers[answer.index].take())
        if not message and answer.finish_reason is None and not (delta.tokens and self._tells_tokens(answer)):
            return None
        first = not self._begun
        if answer.index not in self._begun:
            self._begun.add(answer.index)
            message = {"role": "assistant", "content": "", **message}
        choice = {
            "index": answer.index,
            "delta": message,
            "logprobs": self._logprobs([delta]) if delta.tokens else None,
            "finish_reason": self._finish_reason(answer),
            **self._token_ids(answer),
        }
        prompt = self._prompt_ids() if first else {}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], **prompt}

    def _tells_tokens(self, answer: Answer) -> bool:
        """Returns whether an event says more of tokens than their text: that the first one came, for instance."""
        fields = self._fields
        return answer.index not in self._begun or fields.logprobs or fields.return_token_ids or fields.continuous_usage

    def whole(self, answers: Sequence[Answer], parts: Sequence[Sequence[Delta]]) -> Mapping[str, Any]:
        """Returns the whole of all answers."""
        choices = [self._choice(answer, deltas) for answer, deltas in zip(answers, parts, strict=True)]
        more = {**self._of_prompt(answers[0]), **self._prompt_ids()}
        return {**self._head, "object": "chat.completion", "choices": choices, **more}

    def last(self, usage: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the event with the usage of tokens."""
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def parsed(self, answer: Answer) -> ParsedAnswer:
        """Returns the parsed part of an answer."""
        return ParsedAnswer.joined(self._readers[answer.index].take())

    def _choice(self, answer: Answer, deltas: Sequence[Delta]) -> dict[str, Any]:
        return {
            "index": answer.index,
            "message": _message(self.parsed(answer)),
            "logprobs": self._logprobs(deltas),
            "finish_reason": self._finish_reason(answer),
            **self._token_ids(answer),
        }

    def _prompt_ids(self) -> dict[str, Any]:
        return {"prompt_token_ids": list(self._prompt)} if self._fields.return_token_ids else {}

    def _token_ids(self, answer: Answer) -> dict[str, Any]:
        """Returns the token ids of an answer that were not sent yet, if they are asked for."""
        if not self._fields.return_token_ids:
            return {}
        new = answer.text.token_ids[self._sent.get(answer.index, 0) :]
        self._sent[answer.index] = len(answer.text.token_ids)
        return {"token_ids": new}

    def _finish_reason(self, answer: Answer) -> str | None:
        called = answer.finish_reason == "stop" and self._readers[answer.index].calls > 0
        return "tool_calls" if called else answer.finish_reason

    def _logprobs(self, deltas: Sequence[Delta]) -> dict[str, Any] | None:
        if not self._fields.logprobs:
            return None
        return chat_logprobs(chain.from_iterable(delta.tokens for delta in deltas), self._model.tokenizer)

    def _of_prompt(self, answer: Answer) -> dict[str, Any]:
        if self._fields.prompt_logprobs is None or answer.prompt is None or answer.prompt.logprobs is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(answer.prompt.logprobs, self._model.tokenizer)}


class AnswerReader:
    """Reader of one answer: text, reasoning and calls, the text up to a stop string.

    Args:
        job: work of the request.
        plan: how calls of tools are read; None for text alone.
    """

    def __init__(self, job: Job[ChatRequest], plan: ToolPlan | None) -> None:
        begun = (
            plan is not None and plan.thinking is not None and not job.constraints and _ends_with(job, plan.thinking[0])
        )
        self._parser: Final[AnswerParser] = PlainParser() if plan is None else plan.new_parser(begun=begun)
        stops = job.fields.stops if job.parsed else ()
        self._stops: Final = StopText(stops, keep=job.fields.include_stop_str_in_output)
        self._least: Final = job.fields.min_tokens
        self._new: list[AnswerDelta] = []

    @property
    def calls(self) -> int:
        """Number of calls so far."""
        return self._parser.calls

    def read(self, answer: Answer, delta: Delta) -> None:
        """Reads a part of an answer; the last part with the text that was held back."""
        if self._stops.stopped:
            return
        self._add(answer, self._parser.push(delta.text))
        if answer.finish_reason is not None and not self._stops.stopped:
            self._add(answer, self._parser.finish(cut=answer.finish_reason == "length"))
            if not self._stops.stopped:
                self._say(self._stops.finish())

    def take(self) -> list[AnswerDelta]:
        """Returns the additions since the last call."""
        new, self._new = self._new, []
        return new

    def _add(self, answer: Answer, deltas: Iterable[AnswerDelta]) -> None:
        for delta in deltas:
            if not isinstance(delta, TextDelta):
                self._new.append(delta)
                continue
            self._say(self._stops.push(delta.text) if answer.text.tokens > self._least else delta.text)
            if self._stops.stopped:
                answer.finish_reason, answer.stop = "stop", self._stops.stop
                return

    def _say(self, text: str) -> None:
        if text:
            self._new.append(TextDelta(text))


def _ends_with(job: Job[ChatRequest], mark: str) -> bool:
    """Returns whether the prompt ends with a mark."""
    last = job.prompts[0][-len(mark) - _SPACES :]
    return job.model.tokenizer.decode(last, special_tokens=True).rstrip().endswith(mark)


def _message_delta(deltas: Iterable[AnswerDelta]) -> dict[str, Any]:
    """Returns the additions to a message: one per call, because some clients read only the first one."""
    message: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        match delta:
            case TextDelta(text) if text:
                message["content"] = message.get("content", "") + text
            case ReasoningDelta(text) if text:
                message["reasoning_content"] = message.get("reasoning_content", "") + text
            case CallDelta() if delta.index in calls:
                calls[delta.index]["function"]["arguments"] += delta.arguments
            case CallDelta():
                calls[delta.index] = _call_delta(delta)
            case _:
                pass
    return {**message, "tool_calls": list(calls.values())} if calls else message


def _call_delta(delta: CallDelta) -> dict[str, Any]:
    if delta.id is None:
        return {"index": delta.index, "function": {"arguments": delta.arguments}}
    function = {"name": delta.name, "arguments": delta.arguments}
    return {"index": delta.index, "id": delta.id, "type": "function", "function": function}


def _message(parsed: ParsedAnswer) -> dict[str, Any]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in parsed.calls
    ]
    message = {"role": "assistant", "content": parsed.text or (None if calls else ""), "refusal": None}
    reasoning = {"reasoning_content": parsed.reasoning} if parsed.reasoning else {}
    return {**message, **reasoning, **({"tool_calls": calls} if calls else {})}
