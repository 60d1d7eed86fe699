"""Keys, and what is answered while the server cannot serve."""

import base64
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lang_core import InputError, ProcessError
from tapeline.cli import ProgressEvent
from tapeline.server._cold_server_testing import cold_server
from tapeline.server._model import ServedModel
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, RunningServer, running, text_model

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}


def sources(directory: Path) -> list[ModelSource]:
    return [ModelSource("demo", lambda: text_model(directory, ScriptSlots([5] * 64, VOCABULARY)))]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    options = ServerOptions(port=0, api_keys=("first-key", "schlüssel"))
    with running(sources(tmp_path_factory.mktemp("model")), options) as server:
        yield server


ROUTES = ("/", "/page/page.js", "/metrics", "/openapi.json", "/v1/models", "/v1/models/demo", "/nowhere")


@pytest.mark.parametrize("path", ROUTES)
def test_every_route_but_health_wants_a_key(locked: RunningServer, path: str) -> None:
    refused = locked.request(path)
    assert refused.status == 401
    assert refused.error["code"] == "invalid_api_key"
    assert refused.headers["www-authenticate"] == ("Basic" if path == "/" else "Bearer")
    allowed = locked.request(path, headers={"authorization": "Bearer first-key"})
    assert allowed.status == (404 if path == "/nowhere" else 200)
    assert [locked.request(probe).status for probe in ("/health", "/live")] == [200, 200]


def test_keys(locked: RunningServer) -> None:
    def status(authorization: str) -> int:
        return locked.request("/v1/models", headers={"authorization": authorization}).status

    def basic(password: str) -> str:
        return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()

    assert status("Bearer schl\u00fcssel".encode().decode("latin-1")) == 200
    assert status(basic("first-key")) == status(basic("schlüssel")) == status("bearer  first-key") == 200
    for wrong in ("", "Bearer", "Bearer ", "Bearer first", "first-key", "Digest first-key", "Basic !", basic("no")):
        assert status(wrong) == 401
    assert locked.request("/v1/chat/completions", CHAT).status == 401


def test_a_server_that_loads_or_ends_says_so(tmp_path: Path) -> None:
    with running(sources(tmp_path), load=False) as server:
        health = server.request("/health")
        assert (health.status, health.json["status"], health.json["state"]) == (503, "loading", "waiting")
        assert (server.request("/live").status, server.request("/live").json) == (200, {"status": "live"})
        waiting = server.request("/v1/chat/completions", CHAT)
        assert (waiting.status, waiting.error["code"]) == (503, "unavailable")
        assert waiting.headers["retry-after"] == "1"
        listed = server.request("/v1/models")
        assert (listed.status, listed.error["message"]) == (
            503,
            "the models are being loaded: ask again, or poll /health for the progress",
        )
        server.service.models.load()
        assert server.request("/v1/chat/completions", CHAT).status == 200
        server.service.draining = True
        assert server.request("/health").json == {"status": "draining"}
        assert server.request("/live").status == 200
        assert "the server ends" in server.request("/v1/chat/completions", CHAT).error["message"]


def test_a_cold_server_tells_the_progress(tmp_path: Path) -> None:
    with cold_server(tmp_path) as (server, cold):
        assert server.request("/live").status == 200
        cold.seconds += 2
        cold.progress(ProgressEvent("warning: this is not a step"))
        starting = {"state": "loading", "step": "starting", "done": None, "total": None, "seconds": 2.0}
        health = server.request("/health")
        assert health.status == 503
        assert health.json == {
            "status": "loading",
            **starting,
            "seconds_left": None,
            "models": [
                {"id": "cold", **starting, "seconds_left": None},
                {"id": "behind", "state": "waiting", "step": None, "seconds": None, "seconds_left": None},
            ],
        }
        cold.progress(ProgressEvent("compiling module.mlir for llvm-cpu ..."))
        cold.seconds += 10
        refused = server.request("/v1/chat/completions", CHAT)
        assert (refused.status, refused.headers["retry-after"]) == (503, "3")
        assert "(cold: compiling module.mlir for llvm-cpu; 12 s so far)" in refused.error["message"]
        for done in (0, 1, 2):
            cold.progress(ProgressEvent("verifying", done, 5, f"entry {done}"))
            cold.seconds += 4
        progress = server.request("/health").json
        assert (progress["step"], progress["done"], progress["total"]) == ("verifying 3 of 5: entry 2", 2, 5)
        assert (progress["seconds"], progress["seconds_left"]) == (24.0, 8.0)
        refused = server.request("/v1/models")
        assert (refused.status, refused.headers["retry-after"]) == (503, "8")
        assert "24 s so far, about 8 s left" in refused.error["message"]
    assert server.service.models.ready


def test_clients_without_a_key_get_no_names(tmp_path: Path) -> None:
    with cold_server(tmp_path, "key") as (server, cold):
        cold.progress(ProgressEvent("download org/secret", 1, 2))
        known = server.request("/health", headers={"authorization": "Bearer key"})
        assert (known.status, known.json["step"]) == (503, "download org/secret: 0 of 0 KiB")
        for header in ({}, {"authorization": "Bearer other"}):
            unknown = server.request("/health", headers=header)
            assert unknown.status == 503
            assert unknown.json == {"status": "loading", "state": "loading", "seconds": 0.0, "seconds_left": None}


@pytest.mark.parametrize(("error", "raised"), [(InputError, InputError), (ZeroDivisionError, ProcessError)])
def test_states_of_models_that_fail(tmp_path: Path, error: type[Exception], raised: type[Exception]) -> None:
    stamps, fails = [1], [False]

    def load() -> ServedModel:
        if fails[0]:
            raise error("/secret/path: damaged")
        return text_model(tmp_path, ScriptSlots([5] * 64, VOCABULARY))

    with running([ModelSource("demo", load, lambda: stamps[0])]) as server:
        models = server.service.models

        def listed() -> tuple[str, bool]:
            (model,) = server.request("/v1/models").json["data"]
            assert server.request("/v1/models/demo").json == model
            return model["state"], model["reload_failed"]

        assert listed() == ("ready", False)
        stamps[0], fails[0] = 2, True
        models.reload(changed_only=True)
        assert listed() == ("ready", True)
        assert server.request("/v1/chat/completions", CHAT).status == 200
        stamps[0], fails[0] = 3, False
        models.reload(changed_only=True)
        assert listed() == ("ready", False)
    fails[0] = True
    with running([ModelSource("demo", load)], load=False) as server:
        with pytest.raises(raised, match="damaged"):
            server.service.models.load()
        health = server.request("/health")
        assert (health.status, health.json["status"], health.json["state"]) == (503, "failed", "failed")
        assert "secret" not in health.body.decode()
        assert "reason" in health.json


def test_a_model_that_fails_is_500_and_told_in_the_log(tmp_path: Path) -> None:
    slots = ScriptSlots([5] * 64, VOCABULARY)
    slots.fails = True
    with running([ModelSource("demo", lambda: text_model(tmp_path, slots))]) as server:
        failed = server.request("/v1/chat/completions", CHAT)
        assert failed.status == 500
        assert "the model failed" in failed.error["message"]
        assert "caught fire" not in failed.error["message"]
        health = server.request("/health")
        assert (health.status, health.json["status"]) == (503, "stuck")
        assert "the model failed and could not be made anew" in health.json["reason"]
        again = server.request("/v1/chat/completions", CHAT)
        assert (again.status, again.error["code"]) == (503, "model_failed")
        assert "caught fire" in server.log.getvalue()
        assert "caught fire" not in f"{health.body!r}{again.body!r}"


def test_a_model_is_replaced_while_it_answers(tmp_path: Path) -> None:
    loads: list[int] = []
    stamps = [1]

    def load() -> object:
        loads.append(1)
        if stamps[0] == 3:
            raise ValueError
        return text_model(tmp_path, ScriptSlots([5 + len(loads)] * 64, VOCABULARY, seconds=0.01))

    with running([ModelSource("demo", load, lambda: stamps[0])]) as server:  # pyright: ignore[reportArgumentType]
        texts: list[str] = []
        ask = {**CHAT, "max_tokens": 40, "temperature": 0}

        def run() -> None:
            texts.append(server.request("/v1/chat/completions", ask).json["choices"][0]["message"]["content"])

        running_one = threading.Thread(target=run)
        running_one.start()
        time.sleep(0.1)
        server.service.models.reload(changed_only=True)
        assert len(loads) == 1
        stamps[0] = 2
        server.service.models.reload(changed_only=True)
        run()
        running_one.join()
        assert len(loads) == 2
        assert len(texts[0]) == len(texts[1]) == 40
        assert texts[0] != texts[1]
