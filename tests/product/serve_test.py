"""``tapeline serve`` in a process of its own, driven by the official client of OpenAI's API."""

import concurrent.futures
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

import tapeline
from tests.product._bundles import export
from tests.product._sentences import export_sentences
from tests.product._serving import ServerProcess, serving, wait_until

PROMPT = "It was the best of times,"
ANSWER = " it was the worst of times, it was the age of wisdom, it was the age of foolishness,"
LONG = bool(os.environ.get("TAPELINE_LONG"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = export("demo", tmp_path_factory.mktemp("demo") / "demo", slots=4, max_sequence=256)
    (path / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, demo: Path) -> Iterator[ServerProcess]:
    os.sched_setscheduler(
        0, os.SCHED_OTHER, os.sched_param(0)
    )  # a model of an earlier test changed it; it is inherited
    folder = tmp_path_factory.mktemp("embedder")
    sentences = export_sentences(folder / "model", folder / "sentences")
    flags = (f"--bundle={demo}", f"--bundle={sentences}", "--max_waiting=8", "--header_seconds=1", "--stall_seconds=1")
    with serving(tmp_path_factory.mktemp("server"), *flags) as started:
        yield started
        assert started.end() == 0


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, timeout=60) as started:
        yield started


def said(client: openai.OpenAI, **fields: Any) -> Any:
    given: dict[str, Any] = {"model": "demo", "temperature": 0, "max_tokens": 20, **fields}
    return client.chat.completions.create(messages=[{"role": "user", "content": PROMPT}], **given)


def test_the_answer_is_that_of_generate(client: openai.OpenAI, demo: Path, tmp_path: Path) -> None:
    plain = export("demo", tmp_path / "plain", max_sequence=256)
    with tapeline.load(plain) as model:
        expected = model.generate(PROMPT, max_new_tokens=30).text
    completion = client.completions.create(model="demo", prompt=PROMPT, max_tokens=30, temperature=0)
    assert completion.choices[0].text == expected
    assert expected.startswith(ANSWER[:20])


def test_the_engine_waits_for_a_free_core_and_connections_do_not(server: ServerProcess) -> None:
    """Threads that the engine's thread starts may wait as well; the first thread of the process has the connections."""
    threads = [int(thread.name) for thread in Path(f"/proc/{server.process.pid}/task").iterdir()]
    assert os.SCHED_BATCH in [os.sched_getscheduler(thread) for thread in threads]
    assert os.sched_getscheduler(server.process.pid) == os.SCHED_OTHER


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo", "sentences"]
    assert client.models.retrieve("demo").owned_by == "tapeline"
    with pytest.raises(openai.NotFoundError, match="available: demo, sentences"):
        client.models.retrieve("gpt-4")


def test_chat_with_every_field(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {
        "max_completion_tokens": 12,
        "max_tokens": 12,
        "n": 2,
        "seed": 7,
        "temperature": 2.5,
        "top_p": 0.99,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
        "logit_bias": {"5": -100},
        "logprobs": True,
        "top_logprobs": 3,
        "stop": ["zzzz"],
        "user": "me",
        "metadata": {"a": "b"},
        "store": False,
        "extra_body": {"top_k": 50, "min_p": 0.01, "repetition_penalty": 1.05, "prompt_logprobs": 1},
    }
    first, second = said(client, **fields), said(client, **fields)
    assert [one.message.content for one in first.choices] == [one.message.content for one in second.choices]
    assert first.choices[0].message.content != first.choices[1].message.content
    assert len(first.choices[0].logprobs.content) == 12
    assert first.usage.completion_tokens == 24
    stream = said(client, **fields, stream=True, stream_options={"include_usage": True})
    texts, usage = ["", ""], None
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
        usage = chunk.usage
    assert texts == [one.message.content for one in first.choices]
    assert usage is not None
    assert usage.completion_tokens == 24


def test_completions_with_every_field(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"model": "demo", "temperature": 0}
    done = client.completions.create(prompt=[PROMPT, "Call me"], max_tokens=5, echo=True, logprobs=2, n=2, **given)
    assert [choice.text.startswith((PROMPT, "Call me")) for choice in done.choices] == [True] * 4
    assert done.choices[0].logprobs is not None
    assert done.choices[0].logprobs.tokens is not None
    assert "".join(done.choices[0].logprobs.tokens[1:]) == done.choices[0].text
    endless = client.completions.create(prompt=PROMPT, max_tokens=60, extra_body={"ignore_eos": True}, **given)
    assert endless.usage is not None
    assert endless.usage.completion_tokens == 60
    ids = client.post("/../tokenize", body={"model": "demo", "prompt": PROMPT}, cast_to=object)
    tokens = ids["tokens"]  # pyright: ignore[reportIndexIssue]
    by_ids = client.completions.create(prompt=tokens, max_tokens=20, **given)
    assert by_ids.choices[0].text == client.completions.create(prompt=PROMPT, max_tokens=20, **given).choices[0].text


def test_a_stop_string_and_a_format(client: openai.OpenAI) -> None:
    stopped = said(client, stop=["worst"], max_tokens=60)
    assert stopped.choices[0].message.content == " it was the "
    assert stopped.choices[0].finish_reason == "stop"
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {**schema, "additionalProperties": False}}}
    answer = said(client, response_format=form, max_tokens=100)
    assert isinstance(json.loads(answer.choices[0].message.content)["age"], int)


def test_a_prompt_that_comes_twice_is_reused(client: openai.OpenAI) -> None:
    prompt = PROMPT + ANSWER
    client.completions.create(model="demo", prompt=prompt, max_tokens=2, temperature=0)
    done = client.completions.create(model="demo", prompt=prompt, max_tokens=2, temperature=0)
    assert done.usage is not None
    assert done.usage.prompt_tokens_details is not None
    assert (done.usage.prompt_tokens_details.cached_tokens or 0) > 0.5 * done.usage.prompt_tokens


def test_embeddings_and_ranks(client: openai.OpenAI, server: ServerProcess) -> None:
    done = client.embeddings.create(model="sentences", input=["w5 w9 w66", "w9"])
    plain = client.embeddings.create(model="sentences", input="w9", encoding_format="float")
    np.testing.assert_allclose(done.data[1].embedding, plain.data[0].embedding, rtol=1e-5, atol=1e-6)
    status, ranked = server.request("/v1/rerank", {"query": "w9", "documents": ["w5 w9 w66", "w9"]})
    assert status == 200
    assert [one["index"] for one in ranked["results"]] == [1, 0]
    with pytest.raises(openai.BadRequestError, match="the bundle takes 8"):
        client.embeddings.create(model="sentences", input="w9 " * 20)


def test_errors_are_typed(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="suffix: not supported") as caught:
        client.completions.create(model="demo", prompt="a", suffix="b")
    assert caught.value.param == "suffix"
    with pytest.raises(openai.NotFoundError, match="model 'gpt' not found; available"):
        client.completions.create(model="gpt", prompt="a")
    with pytest.raises(openai.BadRequestError, match="context is 256 tokens") as caught:
        client.completions.create(model="demo", prompt="a", max_tokens=1000)
    assert caught.value.code == "context_length_exceeded"


def test_many_clients_have_the_answers_that_each_alone_has(client: openai.OpenAI) -> None:
    def ask(number: int) -> str:
        prompt = PROMPT + ANSWER[: 4 * number]
        done = client.completions.create(model="demo", prompt=prompt, max_tokens=16, temperature=0.8, seed=number)
        return done.choices[0].text

    alone = [ask(number) for number in range(10)]
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert list(pool.map(ask, range(10))) == alone


def post(body: Any, path: str = "/v1/completions") -> bytes:
    sent = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(sent)}\r\n\r\n"
    return head.encode() + sent


def test_aborted_requests_free_their_slots(server: ServerProcess) -> None:
    body = post({"model": "demo", "prompt": PROMPT, "max_tokens": 200, "stream": True, "ignore_eos": True})
    for number in range(10_000 if LONG else 100):
        with server.connect() as connection:
            whole = number % 4 > 0
            connection.sendall(body if whole else body[: number % len(body)])
            if whole and number % 3:
                connection.recv(200)
            if number % 5 == 0:  # the connection is reset, not closed
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    wait_until(lambda: server.figure("num_requests_running") + server.figure("num_requests_waiting") == 0)
    assert server.request("/v1/completions", {"model": "demo", "prompt": PROMPT, "temperature": 0})[0] == 200


def test_slow_and_half_open_connections_are_closed(server: ServerProcess) -> None:
    silent, partial = server.connect(), server.connect()
    with silent, partial:
        partial.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\n")
        assert silent.recv(10) == partial.recv(10) == b""
    body = post({"model": "demo", "prompt": PROMPT, "n": 4, "stream": True, "logprobs": 20, "max_tokens": 200})
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(body)  # and nothing is ever read
        wait_until(lambda: server.figure("num_requests_running") > 0)
        wait_until(lambda: server.figure("num_requests_running") + server.figure("num_requests_waiting") == 0)
    assert server.request("/health")[0] == 200


def test_the_llm_command_talks_with_it(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: mine\n  model_name: demo\n  api_base: {server.url}\n  can_stream: true\n"
    )
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "llm", "-m", "mine", "-o", "temperature", "0", "-o", "max_tokens", "20", PROMPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ANSWER[:42].strip()


def test_keys_drain_reload_and_tls(tmp_path: Path, demo: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(demo, mine)
    (tmp_path / "keys").write_text("# of the team\nsecret\n")
    flags = (f"--bundle={mine}", f"--api_key_file={tmp_path / 'keys'}", "--watch_seconds=0.1")
    with serving(tmp_path / "server", *flags) as server:
        ask = {"prompt": PROMPT, "max_tokens": 200, "ignore_eos": True, "temperature": 0}
        key = {"authorization": "Bearer secret"}
        assert server.request("/v1/completions", ask)[0] == 401
        with openai.OpenAI(base_url=server.url, api_key="wrong", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                client.models.list()
            assert list(client.with_options(api_key="secret").models.list())

        def loads() -> int:
            return sum(line["event"] == "loaded" for line in server.logged())

        os.utime(mine / "report.json", (1, 1))  # a bundle that changes is loaded again
        wait_until(lambda: loads() == 2)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: loads() == 3)
        (mine / "kernel_config.json").write_text("damaged")
        wait_until(lambda: any(line["event"] == "reload failed" for line in server.logged()))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [pool.submit(server.request, "/v1/completions", ask, **key) for _ in range(4)]
            time.sleep(0.05)
            assert server.end() == 0
            assert {future.result()[0] for future in running} <= {200, 503}
        assert server.logged()[-1]["event"] == "ended"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_tls(tmp_path: Path, demo: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), "-keyout", certificate, "-out", tmp_path / "c"], check=True, capture_output=True)
    certificate.write_text(certificate.read_text() + (tmp_path / "c").read_text())
    with serving(tmp_path / "server", f"--bundle={demo}", f"--certificate={certificate}") as server:
        context = ssl.create_default_context(cafile=str(certificate))
        with context.wrap_socket(server.connect(), server_hostname="127.0.0.1") as connection:
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_a_bundle_that_cannot_be_loaded_leaves_the_others(demo: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(demo, broken)
    (broken / "tokenizer.json").write_text("{}")
    with serving(tmp_path / "server", f"--bundle={broken}", f"--bundle={demo}") as server:
        status, health = server.request("/health")
        assert (status, health["status"]) == (200, "ready")
        (failed,) = health["models"]
        assert (failed["id"], failed["state"]) == ("broken", "failed")
        assert "tokenizer.json" in failed["reason"]
        assert str(tmp_path) not in failed["reason"]
        asked = {"prompt": PROMPT, "max_tokens": 2}
        assert server.request("/v1/completions", {**asked, "model": "demo"})[0] == 200
        status, refused = server.request("/v1/completions", {**asked, "model": "broken"})
        assert (status, refused["error"]["code"]) == (503, "model_failed")
        assert server.end() == 0
