"""Hostile chat templates in ``tapeline serve`` and ``generate``: one typed error, and other requests are answered."""

import concurrent.futures
import os
from pathlib import Path
from typing import Final

import pytest

from tests.product._bundles import export, invoke, refused
from tests.product._serving import serving

_EQUAL: Final = (
    "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}"
)
_LARGE: Final = "{{ '%2000000000d' % 1 }}"
_DEEP: Final = "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}"
_MESSAGES: Final = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("templates") / "demo"
    return export("demo", path, num_layers=1, sequence=8, slots=2, max_sequence=96)


def test_a_server_answers_others_while_a_template_takes_too_long(demo: Path, tmp_path: Path) -> None:
    # Each takes the time that a rendering may take; with TAPELINE_LONG=1 in the environment both.
    for name, text in (("equal", _EQUAL), ("large", _LARGE))[: 2 if os.environ.get("TAPELINE_LONG") else 1]:
        (tmp_path / name).write_text(text)
        with serving(tmp_path / f"server-{name}", f"--bundle={demo}", f"--chat_template={tmp_path / name}") as server:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                calls = [pool.submit(server.request, "/v1/chat/completions", {"messages": _MESSAGES}) for _ in range(2)]
                answered = 0
                while not all(call.done() for call in calls) or not answered:
                    status, answer = server.request("/v1/completions", {"prompt": "It was", "max_tokens": 2})
                    assert status == 200, answer
                    assert server.request("/health")[0] == 200
                    answered += 1
            for call in calls:
                status, answer = call.result()
                assert status == 400, answer
                assert "chat template" in answer["error"]["message"]
                assert str(tmp_path) not in answer["error"]["message"]
            assert server.end() == 0


@pytest.mark.parametrize("text", [_LARGE, _DEEP], ids=["large", "deep"])
def test_generate_refuses_a_hostile_template(
    demo: Path, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = demo / "chat_template.jinja"
    template.write_text(text)
    try:
        done = invoke("generate", capsys, f"--bundle={demo}", "--chat", "--prompt=Hello")
    finally:
        template.unlink()
    refused(done, "chat template")
