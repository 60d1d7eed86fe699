"""Tools that a request brings, and which of them are to be called."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lang_core import InputError, checked_choices, some_of

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAMES: Final = "1 to 64 of A-Z, a-z, 0-9, _, . and -"
_MOST_REFERENCES: Final = 8  # that are followed
_MODES: Final = ("none", "auto", "required")


@checked_choices
@dataclass(frozen=True, slots=True)
class Tool:
    """Function that a model may call.

    Attributes:
        name: name of the function.
        parameters: JSON schema of its arguments, of type object.
        strict: whether arguments must satisfy the schema; None if the request does not say: they must if a call
            is demanded, and need not if the model is free to call.
        shown: the tool as templates take it.
    """

    name: str
    parameters: Mapping[str, Any]
    strict: bool | None
    shown: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Calls that are wanted.

    Attributes:
        mode: none, auto or required.
        name: the tool that must be called; None for any.
    """

    mode: str
    name: str | None = None


def read_tools(values: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Returns the tools of a request.

    Args:
        values: as OpenAI's API has them: ``{"type": "function", "function": {"name", "description", "parameters",
            "strict"}}``.

    Raises:
        InputError: one is not a function, lacks a name, or has parameters that are not a schema of an object.
    """
    tools = tuple(_tool(value, f"tools[{index}]") for index, value in enumerate(values))
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"tools: two are called {twice!r}: give each a name of its own")
    return tools


def read_choice(value: Any, tools: Sequence[Tool]) -> ToolChoice:
    """Returns a request's choice of tools.

    Args:
        value: none, auto, required, ``{"type": "function", "function": {"name"}}``, or None: auto if there are
            tools.
        tools: of the request.

    Raises:
        InputError: it is none of these, names a tool that is not there, or wants a call without tools.
    """
    if value is None:
        return ToolChoice("auto" if tools else "none")
    if isinstance(value, str) and value in _MODES:
        if value == "required" and not tools:
            raise InputError("tool_choice: 'required' needs `tools`: give them, or leave it out")
        return ToolChoice(value if tools else "none")
    function = value.get("function") if isinstance(value, Mapping) and value.get("type") == "function" else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise InputError(
            f"tool_choice: expected {', '.join(_MODES)} or a function by name; found {value!r:.80}: give for instance "
            '{"type": "function", "function": {"name": "..."}}'
        )
    names = [tool.name for tool in tools]
    if name not in names:
        raise InputError(f"tool_choice: {name!r:.80} not found; available: {some_of(name, names) or 'no tools'}")
    return ToolChoice("required", name)


def resolved(part: Any, root: Any) -> Any:
    """Returns the schema that a reference inside a schema names; the schema itself if it is not such a reference."""
    for _ in range(_MOST_REFERENCES):
        reference = part.get("$ref") if isinstance(part, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return part
        target = root
        for step in reference[2:].split("/"):
            target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        part = target
    return part


def _tool(value: Mapping[str, Any], place: str) -> Tool:
    function = value.get("function")
    if value.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise InputError(f"{place}: expected a tool of type function with the field function; found {value!r:.80}")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"{place}.function.name: expected {_NAMES}; found {name!r:.80}: rename it")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise InputError(f"{place}.function.strict: expected true or false; found {strict!r:.80}")
    parameters = _parameters(function.get("parameters"), f"{place}.function.parameters")
    shown = {"type": "function", "function": {key: value for key, value in function.items() if key != "strict"}}
    return Tool(name, parameters, strict, shown)


def _parameters(value: Any, place: str) -> Mapping[str, Any]:
    """Returns the schema of arguments; none if the tool does not name parameters."""
    if value is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(value, Mapping):
        raise InputError(f"{place}: expected a JSON schema of type object; found {value!r:.80}")
    if value.get("type", "object") != "object":
        raise InputError(f"{place}: expected a JSON schema of type object; found type {value.get('type')!r:.80}")
    return {**value, "type": "object"}
