"""Templates rendered in this process, with the limits of a worker and without, for tests of other packages."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tapeline.rendering import _environment
from tapeline.rendering._limits import RenderLimits
from tapeline.rendering._worker import _answer


def worker_reply(text: str, variables: Mapping[str, Any], limits: RenderLimits) -> bytes:
    """Returns the reply of a worker to a call; nothing but the worker's own clock and counts ends it."""
    return _answer(OrderedDict(), text, dict(variables), limits)


def plain_text(text: str, variables: Mapping[str, Any]) -> str:
    """Returns the text that a template makes in Jinja's own sandbox, without limits.

    Raises:
        jinja2.TemplateError: as Jinja raises it; also what an expression of Python raises.
    """
    metered = _environment.environment()
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=list(_extensions()))
    plain.globals.update(metered.globals)
    plain.filters["tojson"] = metered.filters["tojson"]
    return plain.from_string(text).render(variables)


def _extensions() -> list[type[jinja2.ext.Extension]]:
    return [_environment._Generation, jinja2.ext.loopcontrols]
