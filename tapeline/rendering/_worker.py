"""A process that renders templates, one at a time, within limits that the kernel holds."""

import json
import marshal
import math
import resource
import signal
import socket
from collections import OrderedDict
from typing import Any, Final

import jinja2
from jinja2.exceptions import SecurityError

from tapeline.rendering._environment import environment
from tapeline.rendering._frames import FrameError, receive, send
from tapeline.rendering._limits import LimitError, RenderLimits, limited

TEXT: Final = b"T"
"""First byte of a reply that is a text."""
ERROR: Final = b"E"
"""First byte of a reply that is the JSON of an error: its kind and what it says."""

_MEMORY: Final = 256 << 20  # bytes of address space, beside those of the process when it starts
_GRACE: Final = 0.5  # seconds for the worker's own clock to end a rendering, which says more than a signal
_KEPT: Final = 8  # parsed templates
_LARGEST: Final = 1 << 30  # bytes of a message
_SHOWN: Final = 2000  # characters of an error


def work(connection: socket.socket) -> None:
    """Answers calls until the other side closes the connection. A call that outlives its time kills the process."""
    _limit_process()
    templates = OrderedDict[str, jinja2.Template]()
    while True:
        try:
            message = receive(connection, _LARGEST)
        except (FrameError, OSError):
            return
        text, variables, seconds, characters, used = marshal.loads(message)
        del message
        _set_clock(max(seconds - used, 0.0))
        limits = RenderLimits(seconds=seconds, characters=characters, used=used)
        reply = _answer(templates, text, variables, limits)
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(connection, reply)


def _limit_process() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    with open("/proc/self/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    for kind, most in {
        resource.RLIMIT_AS: size + _MEMORY,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
    }.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _set_clock(seconds: float) -> None:
    """Has the kernel end the process when a call takes too long, in native code too."""
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE)
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = math.ceil(used.ru_utime + used.ru_stime + seconds + _GRACE) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _answer(
    templates: OrderedDict[str, jinja2.Template], text: str, variables: dict[str, Any] | None, limits: RenderLimits
) -> bytes:
    """Returns the reply to a call: a rendered text, or an error; an empty text without variables."""
    try:
        template = _parsed(templates, text)
        if variables is None:
            return TEXT
        with limited(limits) as meter:
            return TEXT + "".join(map(meter.write, template.generate(variables))).encode("utf-8", "surrogatepass")
    except LimitError as error:
        return _error("limit", error)
    except SecurityError as error:
        return _error("security", error)
    except jinja2.TemplateSyntaxError as error:
        return _error("syntax", f"line {error.lineno}: {error.message}")
    except jinja2.UndefinedError as error:
        return _error("undefined", error)
    except jinja2.TemplateError as error:
        return _error("refused", error)
    except (MemoryError, RecursionError) as error:
        templates.clear()
        return _error("memory" if isinstance(error, MemoryError) else "depth", "")
    except Exception as error:  # noqa: BLE001 - a template can do anything wrong that an expression of Python can
        return _error("failed", f"{type(error).__name__}: {error}")


def _parsed(templates: OrderedDict[str, jinja2.Template], text: str) -> jinja2.Template:
    if text not in templates:
        templates[text] = environment().from_string(text)
        while len(templates) > _KEPT:
            templates.popitem(last=False)
    templates.move_to_end(text)
    return templates[text]


def _error(kind: str, message: object) -> bytes:
    said = str(message)
    said = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
    return ERROR + json.dumps([kind, said]).encode()
