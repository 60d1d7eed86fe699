"""Templates that would take for ever, or all memory, and the processes that render them."""

import concurrent.futures
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lang_core import InputError, python_command
from tapeline.rendering import RenderLimits
from tapeline.rendering._environment import environment
from tapeline.rendering._limits import limited
from tapeline.text import _chat_template
from tapeline.text._chat_template import ChatTemplate
from tapeline.text._renderer import Renderer, TemplateFault

LIMITS = RenderLimits(seconds=0.1, characters=1000)
_SMALL = RenderLimits(seconds=30, characters=1000)
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in range(99999) if a < 0 %}{% endfor %}" * 200,
    ],
)
def test_a_template_that_takes_too_long_is_given_up(template: str) -> None:
    with pytest.raises(InputError, match=r"here: the chat template takes longer than 0\.1 s"):
        ChatTemplate(template, "here", limits=LIMITS).render(MESSAGES)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(300) %}{{ messages[0].content }}{% endfor %}",
        "{{ 'a' * 1001 }}",
        "{{ 10000000000 * 'a' }}",
        "{% set x = namespace(s='ab') %}{% for a in range(60) %}{% set x.s = x.s ~ x.s %}{% endfor %}",
        "{% set x = namespace(s='ab') %}{% for a in range(60) %}{% set x.s = x.s + x.s %}{% endfor %}",
        "{% set x = namespace(s='ab') %}{% for a in range(60) %}{% set x.s = x.s|replace('a', x.s) %}{% endfor %}",
        "{{ (range(1001)|list)|length }}",
        "{{ 9 ** 999999999 }}",
    ],
)
def test_a_template_that_makes_too_much_is_given_up(template: str) -> None:
    with pytest.raises(InputError, match="the chat template makes more than 1000 characters"):
        ChatTemplate(template, "here", limits=_SMALL).render(MESSAGES)


def test_what_is_within_the_limits_is_rendered_as_ever() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{{ m.content ~ '!' }}"
        "{% else %}none{% endfor %}{{ 'ab' * 3 + 'c' }}{{ 2 ** 10 }}{{ [1] + [2] }}{{ missing|default('-') }}"
        "{% for x in missing %}{% endfor %}",
        "here",
        limits=_SMALL,
    )
    assert template.render([*MESSAGES, *MESSAGES]) == "1/2,Hello!2/2Hello!abababc1024[1, 2]-"
    assert template.render([]) == "noneabababc1024[1, 2]-"


def test_time_that_earlier_renderings_used_is_missing() -> None:
    renderer, template = Renderer(), "{% for m in x %}{{ m }}{% endfor %}"
    assert renderer.render(template, {"x": "abc"}, RenderLimits(seconds=40, used=10)) == "abc"
    with pytest.raises(TemplateFault, match="takes longer than 30 s"):
        renderer.render(template, {"x": "abc"}, RenderLimits(seconds=30, used=30))
    renderer.close()


def test_all_renderings_of_a_call_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template that reads content as parts, or fails on it, is rendered three times."""
    clock, used = [100.0], list[float]()

    def render(text: str, variables: dict[str, Any], limits: RenderLimits) -> str:
        used.append(limits.used)
        clock[0] += 4.0
        return f"{text} {variables['messages'][0]['content']}"

    template = ChatTemplate("of one", "here", limits=RenderLimits(seconds=5))
    monkeypatch.setattr(_chat_template.RENDERER, "render", render)
    monkeypatch.setattr(_chat_template.time, "monotonic", lambda: clock[0])
    assert template.render(MESSAGES) == "of one Hello"  # the first one shows that content is text
    assert template.render(MESSAGES) == "of one Hello"
    assert used == [0.0, 4.0, 0.0]
    monkeypatch.setattr(_chat_template.RENDERER, "render", lambda *call: render(*call) and "nothing")
    used.clear()
    del template.takes_parts
    assert template.render(MESSAGES) == "nothing"
    assert used == [0.0, 4.0, 5.0]


_DAG = (
    "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
)
_HOSTILE = {
    "modulo": "{{ '%2000000000d' % 1 }}",
    "modulo of a variable": "{{ ('%2000000000s' % messages[0].content)|length }}",
    "format": "{{ ('%2000000000d'|format(1))|length }}",
    "format method": "{{ '{:2000000000}'.format(1)|length }}",
    "center": "{{ ('x'|center(2000000000))|length }}",
    "center of a variable": "{{ (messages[0].content|center(2000000000))|length }}",
    "ljust": "{{ messages[0].content.ljust(2000000000)|length }}",
    "tojson": "{{ [1]|tojson(indent=2000000000)|length }}",
    "join": "{% set a = ['x'*4000000]*400 %}{{ ''.join(a)|length }}",
    "bytes": "{% set b='x'.encode() %}{{ (b*3000000000)|length }}",
    "equal": _DAG + "{{ ns.x == ns.y }}",
    "text of shared lists": _DAG + "{{ ns.x|string|length }}",
    "lipsum": "{{ lipsum(n=300000)|length }}",
    "parentheses": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "ifs": "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
    "loops": "{% for i in [1] %}" * 30 + "x" + "{% endfor %}" * 30,
    "macro": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "sum": "{% set a = [['x']*4000]*4000 %}{{ a|sum(start=[])|length }}",
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_hostile_template_is_one_error_and_takes_no_memory_here(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=r"here: .*chat template"):
        ChatTemplate(_HOSTILE[name], "here", limits=RenderLimits(seconds=0.5)).render(MESSAGES)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # in KiB
    assert ChatTemplate("{{ messages[0].content }}", "here").render(MESSAGES) == "Hello"


def _children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


_LONG = RenderLimits(seconds=30)
_ECHO = "{{ x }}"


def test_processes_that_end_are_replaced_and_leave_no_zombies() -> None:
    renderer = Renderer()
    assert renderer.render(_ECHO, {"x": "a"}, _LONG) == "a"
    assert renderer._server
    server = renderer._server.process.pid
    [worker] = _children(server)
    assert renderer.render(_ECHO, {"x": "b"}, _LONG) == "b"
    assert _children(server) == [worker]  # it is used again
    os.kill(worker, signal.SIGKILL)
    _until(lambda: _children(server) == [])  # gone, and no zombie
    assert renderer.render(_ECHO, {"x": "c"}, _LONG) == "c"
    [worker] = _children(server)
    for pid in (server, worker):
        os.kill(pid, signal.SIGKILL)
    _until(lambda: Path(f"/proc/{worker}/stat").exists() is False)
    assert renderer.render(_ECHO, {"x": "d"}, _LONG) == "d"
    server, [worker] = renderer._server.process.pid, _children(renderer._server.process.pid)
    with pytest.raises(TemplateFault, match=r"longer than 0\.2 s"):
        renderer.render(_HOSTILE["equal"], {}, RenderLimits(seconds=0.2))
    _until(lambda: _children(server) == [])
    assert renderer.render(_ECHO, {"x": "e"}, _LONG) == "e"
    renderer.close()
    assert not Path(f"/proc/{server}").exists()


def _unread(connection: socket.socket) -> int:
    """Returns the number of bytes that the other side has yet to read, as the kernel counts them."""
    return struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]


def test_a_call_whose_worker_was_never_forked_is_made_again() -> None:
    renderer = Renderer()
    assert renderer.render(_ECHO, {"x": "a"}, _LONG) == "a"
    assert renderer._server
    server = renderer._server.process.pid
    [worker] = _children(server)
    os.kill(worker, signal.SIGKILL)
    _until(lambda: _children(server) == [])
    os.kill(server, signal.SIGSTOP)
    control = renderer._server.control
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        text = pool.submit(renderer.render, _ECHO, {"x": "b"}, _LONG)
        _until(lambda: _unread(control) > 0)
        os.kill(server, signal.SIGKILL)  # with the connection of a worker that it has yet to fork
        assert text.result(30) == "b"
    renderer.close()


def test_a_call_is_made_again_also_if_another_call_has_started_the_process_again() -> None:
    renderer = Renderer()
    assert renderer.render(_ECHO, {"x": "a"}, _LONG) == "a"
    [idle], process = renderer._idle, renderer._server
    renderer._idle.clear()
    idle.close()
    control, theirs = socket.socketpair()
    assert process
    ours, process.control = process.control, control
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        text = pool.submit(renderer.render, _ECHO, {"x": "b"}, _LONG)
        _until(lambda: _unread(control) > 0)
        renderer._server = None  # as another call replaces it
        assert renderer.render(_ECHO, {"x": "c"}, _LONG) == "c"
        theirs.close()
        assert text.result(30) == "b"
    ours.close()
    process.close()
    renderer.close()


def test_a_worker_that_is_killed_while_it_renders_is_one_error() -> None:
    renderer = Renderer()
    assert renderer.render(_ECHO, {"x": "a"}, _LONG) == "a"
    assert renderer._server
    server = renderer._server.process.pid
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = pool.submit(renderer.render, _HOSTILE["equal"], {}, _LONG)
        _until(lambda: renderer._working == 1)
        for worker in _children(server):
            os.kill(worker, signal.SIGKILL)
        with pytest.raises(TemplateFault):
            call.result()
    assert renderer.render(_ECHO, {"x": "b"}, _LONG) == "b"
    renderer.close()


def test_many_threads_get_their_own_texts() -> None:
    renderer = Renderer(workers=3)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(lambda number: renderer.render(_ECHO, {"x": number}, _LONG), range(200)))
    assert texts == [str(number) for number in range(200)]
    renderer.close()


_PROGRAM = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from tapeline.rendering import RenderLimits
from tapeline.rendering._environment import environment
from tapeline.rendering._limits import limited
from tapeline.text._renderer import RENDERER
limits = RenderLimits(seconds=20)
assert RENDERER.render("{{ x }}", {"x": 1}, limits) == "1"
pid = os.fork()
if pid == 0:
    os._exit(0 if RENDERER.render("{{ x }}", {"x": 2}, limits) == "2" else 1)
assert os.waitpid(pid, 0)[1] == 0
assert RENDERER.render("{{ x }}", {"x": 3}, limits) == "3"
print(RENDERER._server.process.pid, flush=True)
RENDERER.render(sys.argv[2], {}, limits)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_program_and_a_fork_has_its_own(number: signal.Signals) -> None:
    command = python_command(
        "-c", _PROGRAM, json.dumps(sys.path), "{% for i in range(9) %}{{ x }}{% endfor %}" + _HOSTILE["equal"]
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        server = int(process.stdout.readline())
        _until(lambda: _children(server))
        process.send_signal(number)
        assert process.wait(60) != 0
    _until(lambda: not Path(f"/proc/{server}").exists())


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8) | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=6,
)
_PIECES = st.sampled_from(
    [
        "{{ x }}",
        "{{ x|tojson }}",
        "{{ x|string|upper }}",
        "{% for y in x %}{{ loop.index }}{{ y }}{% endfor %}",
        "{{ x.a }}",
        "{% if x %}+{% else %}-{% endif %}\n",
        "{{ x|length }}",
        "{{ 'ab' * 3 ~ x }}",
        "{%- set z = x %} {{ z }}",
        "text\n",
        "{{ (",
        "%}",
    ]
)


def test_texts_are_those_of_the_sandbox_in_one_process() -> None:
    def from_here(text: str, value: Any) -> str:
        with limited(_LONG) as meter:
            return "".join(map(meter.write, environment().from_string(text).generate({"x": value})))

    @settings(deadline=None, max_examples=300)
    @given(st.lists(_PIECES, max_size=5), _VALUES)
    def run(pieces: list[str], value: Any) -> None:
        text = "".join(pieces)
        assert _outcome(lambda: renderer.render(text, {"x": value}, _LONG)) == _outcome(lambda: from_here(text, value))

    renderer = Renderer()
    run()
    renderer.close()


def _outcome(call: Callable[[], str]) -> object:
    """Returns a text, or the kind of what went wrong."""
    try:
        return call()
    except TemplateFault:
        return TemplateFault
    except Exception:  # noqa: BLE001 - whatever the sandbox raises
        return TemplateFault


def test_variables_are_values() -> None:
    class Words(list[str]):
        pass

    renderer = Renderer()
    assert renderer.render("{{ x[1] }}{{ y.z }}", {"x": Words(["a", "b"]), "y": {"z": (1, 2)}}, _LONG) == "b(1, 2)"
    with pytest.raises(InputError, match=r"y\.z: expected a value of JSON for a chat template; found function"):
        renderer.render(_ECHO, {"y": {"z": _until}}, _LONG)
    renderer.close()
