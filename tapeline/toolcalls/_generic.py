"""Tools for models with a chat template that shows none.

A system message lists them, and calls have the form of Hermes.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lang_core import checked_choices

_INTRODUCTION: Final = """You may call functions to help with the request. These are the functions, as JSON schemas:
<tools>
{}
</tools>
To call a function, answer with its name and arguments as a JSON object inside <tool_call> tags:
<tool_call>
{{"name": "function-name", "arguments": {{"key": "value"}}}}
</tool_call>"""


@checked_choices
def generic_messages(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], *, system: bool
) -> list[dict[str, Any]]:
    """Returns messages for a template without tools: calls and results become text.

    Args:
        messages: the conversation, as templates take it.
        tools: tools that the model may call.
        system: whether the template takes a system message; the first user's message introduces the tools otherwise.
    """
    plain: list[dict[str, Any]] = []
    for message in messages:
        one = _plain(message)
        if plain and message["role"] == "tool" and plain[-1].get("_results"):
            plain[-1]["content"] += f"\n{one['content']}"
        else:
            plain.append({**one, "_results": message["role"] == "tool"})
    said = [{key: value for key, value in one.items() if key != "_results"} for one in plain]
    return _introduced(said, tools, system) if tools else said


def _introduced(
    messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], system: bool
) -> list[dict[str, Any]]:
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    text = _INTRODUCTION.format(listed)
    role = "system" if system else "user"
    place = next((index for index, message in enumerate(messages) if message["role"] == role), None)
    if place is None or (system and place != 0):
        return [{"role": role, "content": text}, *messages]
    first = messages[place]
    content = first["content"]
    both = f"{content}\n\n{text}" if system else f"{text}\n\n{content}"
    if not isinstance(content, str):  # parts, as with pictures
        both = [{"type": "text", "text": text}, *content]
    return [*messages[:place], {**first, "content": both}, *messages[place + 1 :]]


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message in which calls and results are text."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    calls = message.get("tool_calls") or ()
    if not calls:
        return dict(message)
    texts = [message["content"]] if message.get("content") else []
    for call in calls:
        function = call["function"]
        said = {"name": function["name"], "arguments": function["arguments"]}
        texts.append(f"<tool_call>\n{json.dumps(said, ensure_ascii=False)}\n</tool_call>")
    return {**{key: value for key, value in message.items() if key != "tool_calls"}, "content": "\n".join(texts)}
