"""Chat templates in this process, in the code of a worker: what Jinja compiles and runs is part of the coverage.

An input is a JSON object with the template, messages and variables. A text that is made within the limits is the one
that Jinja's own sandbox makes without them.
"""

import json
import signal
import time

import jinja2

from tapeline.rendering import RenderLimits
from tapeline.rendering._render_testing import plain_text, worker_reply
from tests.fuzz._target import Target
from tests.fuzz.targets import chat_templates
from tests.goldens.chat_templates import TOKENS

_LIMITS = RenderLimits(seconds=0.5, characters=1 << 16)
_KERNEL = 1.0  # seconds of CPU time after which the kernel ends a worker
_QUICK = 0.05  # seconds of a rendering that is done again without limits
_KINDS = ("depth", "failed", "limit", "memory", "refused", "security", "syntax", "undefined")
_UNLIKE = ("strftime_now", "lipsum", "random", " at 0x")  # what differs from one time to the next
_FURTHER = (
    "{% macro turn(m, n=2) %}<{{ m.role | upper }}:{{ n }}>{{ caller() if caller else m.content }}{% endmacro %}"
    "{% for m in messages | reverse %}{{ turn(m) }}{% call turn(m, n=loop.index) %}{{ loop.last }}{% endcall %}"
    "{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages if m.role in ['user'] %}"
    "{% set ns.n = ns.n + m.content | length %}{{ loop.length }}{{ loop.revindex }}"
    "{{ loop.cycle('a', 'b') }}{% else %}none{% endfor %}{{ ns.n }}",
    "{% for group in messages | groupby('role') %}{{ group.grouper }}={{ group.list | map(attribute='content') | join"
    " }}{% endfor %}{{ messages | selectattr('role', 'equalto', 'user') | list | tojson(indent=2) }}",
    "{% for k, v in {'a': [1, 2], 'b': 'x'} | dictsort recursive %}{{ k ~ v }}{{ loop.previtem }}{{ loop.nextitem }}"
    "{{ loop.changed(k) }}{% endfor %}{{ '%s-%d' % ('a', 3) }}{{ '{0:>4}'.format(7) }}{{ 'ab'.center(8) ~ 'c' * 3 }}",
    "{% filter upper %}{% with a = messages[0].content.split('i') %}{{ a[0] + a[-1] }}{% endwith %}{% endfilter %}"
    "{{ messages[::-1][0].role[1:] }}{{ x_a is defined and x_a is string }}{{ 7 // 2 ** 2 % 3 }}{{ none is none }}",
    "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% elif not x_a %}{% generation %}{{ eos_token }}"
    "{% endgeneration %}{% endif %}{{ (messages | first).get('content', '') | replace('H', 'J') | indent(2) | trim }}",
    "{% set x %}{{ messages | length }}{% endset %}{{ x | int + 1 }}{{ [3, 1, 2] | sort | batch(2) | list }}"
    "{{ range(4) | sum }}{{ 'a,b'.split(',') | unique | list }}{{ 2.5 | round | abs }}"
    "{{ messages | last | items | list }}",
)


def _seeds() -> list[bytes]:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    further = [{"template": text, "messages": messages, "more": {"a": "b"}} for text in _FURTHER]
    return [*chat_templates.TARGET.seeds(), *(json.dumps(document).encode() for document in further)]


class _KilledError(BaseException):
    """The kernel would have ended the worker."""


def _end(*_: object) -> None:
    raise _KilledError


def _run(data: bytes) -> bool:
    call = chat_templates.call_of(data)
    if call is None:
        return False
    text, messages, more = call
    variables = {"messages": messages, "add_generation_prompt": True, "tools": None, **TOKENS, **more}
    signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, _KERNEL)
    try:
        return _compare(text, variables)
    except _KilledError:
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _compare(text: str, variables: dict[str, object]) -> bool:
    began = time.process_time()
    reply = worker_reply(text, variables, _LIMITS)
    seconds = time.process_time() - began
    if reply[:1] == b"E":
        kind, _ = json.loads(reply[1:])
        if kind not in _KINDS:
            raise AssertionError(f"an error of kind {kind!r}")
        return False
    made = reply[1:].decode("utf-8", "surrogatepass")
    if seconds < _QUICK and not any(name in text or name in made.lower() for name in _UNLIKE):
        plain = plain_text(text, variables)
        if plain != made:
            raise AssertionError(f"with limits {made[:300]!r}, without {plain[:300]!r}")
    return True


TARGET = Target(
    seeds=_seeds,
    run=_run,
    mutate=chat_templates.TARGET.mutate,
    errors=(jinja2.TemplateError,),
    cpu_seconds=4 * _KERNEL,
    grown_bytes=2**28,
)
