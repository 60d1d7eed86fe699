"""Chat templates: rendered with messages. An input is a JSON object with the template, messages and variables."""

import json
from random import Random

from tapeline.text import ChatTemplate
from tests.fuzz._json_mutations import mutate_json
from tests.fuzz._target import Target
from tests.goldens.chat_templates import TEMPLATES, TOKENS

_MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
_PIECES = (
    *("{{ ", " }}", "{% if ", " %}", "{% endif %}", "{% for m in messages %}", "{% endfor %}", "{# #}", "{%- set x = "),
    *("messages", "m.role", "m['content']", "loop.index0", "loop.first", "range(9)", "range(10**9)", "namespace(a=1)"),
    *(" | trim", " | tojson", " | length", " | join(',')", " | upper", " | default('a')", " | items", " | list"),
    *(" * 10**9", " ~ ", " + ", " ** ", " % ", "'%1000000000d' % 1", "'a'.center(10**9)", "'{0:>99999999}'.format(1)"),
    *("''.__class__", "self", "cycler", "lipsum(99)", "raise_exception('a')", "strftime_now('%Y')", "[[]] * 99"),
    *("{% macro f(a) %}", "{% endmacro %}", "{{ f(f) }}", "{% generation %}", "{% break %}", "{% continue %}", "((((("),
)


def _seeds() -> list[bytes]:
    return [
        json.dumps({"template": text, "messages": _MESSAGES[skip:], "more": {}}).encode()
        for text in TEMPLATES.values()
        for skip in (0, 1)
    ]


def _mutate(data: bytes, draw: Random) -> bytes:
    if draw.random() < 0.3:
        return mutate_json(data, draw)
    try:
        document = json.loads(data)
        text = document["template"]
        for _ in range(draw.choice((1, 1, 2, 4))):
            start = draw.randrange(len(text) + 1)
            stop = min(len(text), start + draw.choice((0, 0, 0, 1, 5, 30)))
            text = text[:start] + draw.choice(_PIECES) + text[stop:]
        return json.dumps({**document, "template": text}).encode()
    except (ValueError, TypeError, KeyError):
        return data


def _run(data: bytes) -> bool:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(document, dict) or not isinstance(document.get("template"), str):
        return False
    messages, more = document.get("messages"), document.get("more")
    if not isinstance(messages, list) or not isinstance(more, dict):
        return False
    if not all(isinstance(message, dict) and {*message} >= {"role", "content"} for message in messages):
        return False
    more = {f"x_{name}": value for name, value in more.items()}
    ChatTemplate(document["template"], "the input", TOKENS).render(messages, **more)
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
