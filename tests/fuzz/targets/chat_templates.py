"""Chat templates: rendered with messages. An input is a JSON object with the template, messages and variables."""

import json
import re
from random import Random
from typing import Any

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
_TAGS = re.compile(r"(\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\})", re.DOTALL)
_NAMES = (
    *("messages", "messages[0]", "messages[-1].role", "messages[0]['content']", "add_generation_prompt", "bos_token"),
    *(
        "tools",
        "x_a",
        "m",
        "loop.index0",
        "ns.a",
        "undefined_name",
        "''",
        "'a b'",
        "'%s'",
        "'{}'",
        "0",
        "-1",
        "2.5",
        "7",
    ),
    *("[]", "[1, 'a']", "{'a': 1}", "(1, 2)", "none", "true", "range(3)", "namespace(a=1)", "dict(a=1)", "10**9"),
)
_FORMS = (
    *("{0} + {1}", "{0} ~ {1}", "{0} * {1}", "{0} % {1}", "{0} // {1}", "{0} ** {1}", "{0} == {1}", "{0} < {1}"),
    *("{0} and {1}", "not {0}", "{0} in {1}", "{0} if {1} else {0}", "{0}[{1}]", "{0}[{1}:]", "{0}.a", "({0})", "-{0}"),
    *(
        "{0} | length",
        "{0} | trim",
        "{0} | upper",
        "{0} | list",
        "{0} | string",
        "{0} | int",
        "{0} | tojson",
        "{0} | items",
    ),
    *("{0} | join({1})", "{0} | default({1})", "{0} | replace('a', {1})", "{0} | map('string') | list", "{0} | first"),
    *("{0} | selectattr('role', 'equalto', {1}) | list", "{0} | reverse | list", "{0} | sort", "{0} | batch(2) | list"),
    *(
        "{0} | indent({1})",
        "{0} | center({1})",
        "{0} | dictsort",
        "{0} | groupby('role') | list",
        "{0} | unique | list",
    ),
    *("{0} is defined", "{0} is string", "{0} is mapping", "{0} is none", "{0} is iterable", "{0} is divisibleby({1})"),
    *(
        "{0}.split({1})",
        "{0}.strip()",
        "{0}.get({1})",
        "{0}.items()",
        "{0}.startswith({1})",
        "{0}.format({1})",
        "[{0}, {1}]",
    ),
)
_BLOCKS = (
    *("{{{{ {0} }}}}", "{{% if {0} %}}{1}{{% endif %}}", "{{% for m in {0} %}}{1}{{% endfor %}}", "{{# {0} #}}", "{1}"),
    *("{{% if {0} %}}{1}{{% elif {0} %}}b{{% else %}}{1}{{% endif %}}", "{{% set x_a = {0} %}}", "{{%- {0} -%}}"),
    *("{{% set ns = namespace(a={0}) %}}{{% set ns.a = {0} %}}", "{{% set x_a %}}{1}{{% endset %}}", "{{{{- {0} -}}}}"),
    *("{{% macro f(m, x_a=1) %}}{1}{{% endmacro %}}{{{{ f({0}) }}}}", "{{% call f({0}) %}}{1}{{% endcall %}}"),
    *("{{% for m in {0} recursive %}}{1}{{{{ loop(m) }}}}{{% endfor %}}", "{{% filter upper %}}{1}{{% endfilter %}}"),
    *("{{% for m, x_a in {0} if m %}}{1}{{% else %}}{1}{{% endfor %}}", "{{% with m = {0} %}}{1}{{% endwith %}}"),
    *("{{% generation %}}{1}{{% endgeneration %}}", "{{{{ loop.cycle({0}, 1) }}}}{{{{ loop.last }}}}", "{{% break %}}"),
)


def _expression(draw: Random, depth: int = 0) -> str:
    if depth > 2 or draw.random() < 0.4:
        return draw.choice(_NAMES)
    return draw.choice(_FORMS).format(_expression(draw, depth + 1), _expression(draw, depth + 1))


def _block(draw: Random, depth: int = 0) -> str:
    inside = _block(draw, depth + 1) if depth < 2 and draw.random() < 0.5 else draw.choice(("a", " b\n", ""))
    return draw.choice(_BLOCKS).format(_expression(draw), inside)


def _changed(text: str, draw: Random) -> str:
    """Puts a block between two tags or around one, or another expression into one; else characters anywhere."""
    parts = _TAGS.split(text)
    place = draw.randrange(len(parts))
    kind = draw.randrange(5)
    if kind < 2:
        parts[place] += _block(draw) if place % 2 == 0 else ""
    elif kind == 2 and place % 2 and parts[place].startswith("{{"):
        parts[place] = f"{{{{ {_expression(draw)} }}}}"
    elif kind == 3 and place % 2 and parts[place].startswith("{{"):
        parts[place] = ""
    else:
        start = draw.randrange(len(text) + 1)
        stop = min(len(text), start + draw.choice((0, 0, 0, 1, 5, 30)))
        return text[:start] + draw.choice(_PIECES) + text[stop:]
    return "".join(parts)


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
            text = _changed(text, draw)
        return json.dumps({**document, "template": text}).encode()
    except (ValueError, TypeError, KeyError):
        return data


def call_of(data: bytes) -> tuple[str, list[Any], dict[str, Any]] | None:
    """Returns the template, the messages and the further variables of an input; None if it has none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(document.get("template"), str):
        return None
    messages, more = document.get("messages"), document.get("more")
    if not isinstance(messages, list) or not isinstance(more, dict):
        return None
    if not all(isinstance(message, dict) and {*message} >= {"role", "content"} for message in messages):
        return None
    return document["template"], messages, {f"x_{name}": value for name, value in more.items()}


def _run(data: bytes) -> bool:
    call = call_of(data)
    if call is None:
        return False
    text, messages, more = call
    ChatTemplate(text, "the input", TOKENS).render(messages, **more)
    return True


TARGET = Target(seeds=_seeds, run=_run, mutate=_mutate)
