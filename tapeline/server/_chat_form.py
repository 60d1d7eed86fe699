"""Answers in a conversation, in the form of the API: text, reasoning, calls of tools."""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from tapeline.server._answer_text import Delta
from tapeline.server._answers import Answer
from tapeline.server._logprobs import chat_logprobs, prompt_logprobs
from tapeline.server._model import TextModel
from tapeline.server._requests import ChatRequest
from tapeline.toolcalls import AnswerDelta, AnswerParser, CallDelta, ParsedAnswer, ReasoningDelta, TextDelta, ToolPlan


class ChatForm:
    """Form of answers in a conversation.

    Args:
        model: makes the answers.
        fields: what the request says.
        plan: how calls of tools are read out of the answers.
        request_id: name of the request.
    """

    def __init__(self, model: TextModel, fields: ChatRequest, plan: ToolPlan | None, request_id: str) -> None:
        self._model: Final = model
        self._fields: Final = fields
        self._head: Final = {"id": f"chatcmpl-{request_id}", "created": int(time.time()), "model": model.name}
        self._parsers: Final = [None if plan is None else plan.new_parser() for _ in range(fields.n)]
        self._begun: Final = set[int]()

    def chunk(self, answer: Answer, delta: Delta) -> Mapping[str, Any] | None:
        """Returns an event of a part of an answer; None where nothing is in it."""
        message = _message_delta(self._parsed(answer, delta))
        if not message and not delta.tokens and answer.finish_reason is None:
            return None
        if answer.index not in self._begun:
            self._begun.add(answer.index)
            message = {"role": "assistant", "content": "", **message}
        choice = {
            "index": answer.index,
            "delta": message,
            "logprobs": self._logprobs([delta]) if delta.tokens else None,
            "finish_reason": self._finish_reason(answer),
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
        parsed = ParsedAnswer.joined(self._parsed(answer, Delta(text)))
        return {
            "index": answer.index,
            "message": _message(parsed),
            "logprobs": self._logprobs(deltas),
            "finish_reason": self._finish_reason(answer),
        }

    def _parsed(self, answer: Answer, delta: Delta) -> Sequence[AnswerDelta]:
        """Returns what the parser makes of a part; of the last part, with what it held back."""
        parser = self._parsers[answer.index]
        if parser is None:
            return [TextDelta(delta.text)] if delta.text else []
        ended = answer.finish_reason is not None
        return [*parser.push(delta.text), *(parser.finish() if ended else ())]

    def _finish_reason(self, answer: Answer) -> str | None:
        called = answer.finish_reason == "stop" and _has_calls(self._parsers[answer.index])
        return "tool_calls" if called else answer.finish_reason

    def _logprobs(self, deltas: Sequence[Delta]) -> dict[str, Any] | None:
        if not self._fields.logprobs:
            return None
        return chat_logprobs(chain.from_iterable(delta.tokens for delta in deltas), self._model.tokenizer)

    def _of_prompt(self, answer: Answer) -> dict[str, Any]:
        if self._fields.prompt_logprobs is None or answer.prompt is None or answer.prompt.logprobs is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(answer.prompt.logprobs, self._model.tokenizer)}


def _has_calls(parser: AnswerParser | None) -> bool:
    return parser is not None and bool(parser.calls)


def _message_delta(deltas: Iterable[AnswerDelta]) -> dict[str, Any]:
    """Returns what a message gains."""
    message: dict[str, Any] = {}
    for delta in deltas:
        match delta:
            case TextDelta(text) if text:
                message["content"] = message.get("content", "") + text
            case ReasoningDelta(text) if text:
                message["reasoning_content"] = message.get("reasoning_content", "") + text
            case CallDelta():
                message.setdefault("tool_calls", []).append(_call_delta(delta))
            case _:
                pass
    return message


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
