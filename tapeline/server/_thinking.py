"""Thinking before an answer: the switches of chat templates, and a limit of its tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tapeline.server._constraints import ThinkingLimit
from tapeline.server._model import TextModel
from tapeline.server._requests import ChatRequest

_MARKS: Final = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>"))
_EFFORT: Final = "reasoning_effort"
_SWITCH: Final = "enable_thinking"
_OTHER_SWITCH: Final = "thinking"  # of DeepSeek and Granite
_OTHER_SWITCH_TEST: Final = ("thinking is defined", "if thinking", "thinking is not defined")


@dataclass(frozen=True, slots=True)
class ThinkingPlan:
    """Consequences of a request's fields of thinking.

    Attributes:
        variables: variables of the chat template.
        limit: limit of the thinking's tokens; None for unlimited.
        ignored: why the model ignores fields, by their name.
    """

    variables: Mapping[str, Any]
    limit: ThinkingLimit | None
    ignored: Mapping[str, str]


def thinking_plan(model: TextModel, fields: ChatRequest) -> ThinkingPlan:
    """Returns the settings of a request's thinking fields for a model."""
    variables: dict[str, Any] = {}
    ignored: dict[str, str] = {}
    switches = _switches(model)
    takes_effort = model.template is not None and model.template.mentions(_EFFORT)
    if fields.reasoning_effort is not None and takes_effort:
        variables[_EFFORT] = fields.reasoning_effort
    wanted = fields.enable_thinking
    if wanted is None and fields.reasoning_effort is not None:
        wanted = fields.reasoning_effort != "none"
    if wanted is not None:
        variables |= dict.fromkeys(switches, wanted)
    if fields.reasoning_effort is not None and not (switches or takes_effort):
        ignored[_EFFORT] = "the chat template of the model has no such variable, and no switch for thinking"
    if fields.enable_thinking is not None and not switches:
        ignored[_SWITCH] = "the chat template of the model has no switch for thinking"
    limit = None
    if fields.budget is not None:
        limit = _limit(model, fields.budget)
        if limit is None:
            name = "thinking_budget" if fields.thinking_token_budget is None else "thinking_token_budget"
            ignored[name] = "the tokenizer of the model has no mark that ends its thinking"
    return ThinkingPlan({**variables, **(fields.chat_template_kwargs or {})}, limit, ignored)


def _switches(model: TextModel) -> tuple[str, ...]:
    template = model.template
    if template is None:
        return ()
    if template.mentions(_SWITCH):
        return (_SWITCH,)
    return (_OTHER_SWITCH,) if any(template.mentions(test) for test in _OTHER_SWITCH_TEST) else ()


def _limit(model: TextModel, budget: int) -> ThinkingLimit | None:
    for opening, closing in _MARKS:
        marks = (model.tokenizer.added_id(opening), model.tokenizer.added_id(closing))
        if marks[0] is not None and marks[1] is not None:
            return ThinkingLimit(marks[0], marks[1], budget)
    return None
