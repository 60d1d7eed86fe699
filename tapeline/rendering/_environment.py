"""The sandbox in which chat templates are rendered, as transformers has it."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, NoReturn

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser

from tapeline.rendering._limits import MeteredEnvironment


class _Generation(jinja2.ext.Extension):
    """``{% generation %} .. {% endgeneration %}`` marks the assistant's text, for training; here it is plain text."""

    tags: Final = {"generation"}  # pyright: ignore[reportIncompatibleVariableOverride]

    def parse(self, parser: Parser) -> nodes.Node:
        """The statements between the tags."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def environment() -> jinja2.Environment:
    """Jinja as templates expect it: blocks on lines of their own leave none behind, nothing is escaped for HTML.

    Templates come with models, from anywhere. The sandbox refuses names that begin with an underscore, changes of
    arguments, and ranges beyond its limit.
    """
    made = MeteredEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    functions: dict[str, Callable[..., Any]] = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    made.globals.update(functions)
    made.filters["tojson"] = _tojson
    return made


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
