"""Models on demand: loaded when a request names them, unloaded by memory and by time."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lang_core import InputError
from tapeline.server._model import ServedModel
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, Answered, RunningServer, running, text_model

_NAMES = ("one", "two", "three")


@dataclasses.dataclass(slots=True)
class _Loads:
    """Sources of models that note when they are loaded and closed."""

    directory: Path
    events: list[str] = dataclasses.field(default_factory=list[str])
    faults: dict[str, Exception] = dataclasses.field(default_factory=dict[str, Exception])
    stamps: dict[str, object] = dataclasses.field(default_factory=dict[str, object])
    before: Callable[[str], object] = lambda name: None
    seconds: float = 0.0

    def source(self, name: str, **fields: Any) -> ModelSource:
        def load() -> ServedModel:
            self.before(name)
            if name in self.faults:
                raise self.faults[name]
            self.events.append(f"+{name}")
            folder = self.directory / name
            folder.mkdir(exist_ok=True)
            slots = ScriptSlots([7] * 300, VOCABULARY, seconds=self.seconds)
            model = text_model(folder, slots, name)
            close = model.engine.close

            def noted() -> None:
                self.events.append(f"-{name}")
                close()

            model.engine.close = noted
            return model

        chosen = {"on_demand": True, "nbytes": 10, **fields}
        return ModelSource(name, load, lambda: self.stamps.get(name), **chosen)


@pytest.fixture
def loads(tmp_path: Path) -> _Loads:
    return _Loads(tmp_path)


@pytest.fixture
def server(loads: _Loads) -> Iterator[RunningServer]:
    with running([loads.source(name) for name in _NAMES], ServerOptions(port=0, models_memory=25)) as started:
        yield started


def complete(server: RunningServer, name: str | None, **fields: Any) -> Answered:
    body = {"model": name, "prompt": "a", "max_tokens": 3, "temperature": 0, **fields}
    return server.request("/v1/completions", {key: value for key, value in body.items() if value is not None})


def states(server: RunningServer) -> dict[str, str]:
    return {model["id"]: model["state"] for model in server.request("/v1/models").json["data"]}


def test_a_request_loads_its_model_and_the_one_used_least_lately_goes(server: RunningServer, loads: _Loads) -> None:
    assert server.request("/health").json == {"status": "ready"}
    assert states(server) == dict.fromkeys(_NAMES, "unloaded")
    assert loads.events == []
    for name in ("one", "two", "one", "three", "two"):
        assert complete(server, name).status == 200
    assert loads.events == ["+one", "+two", "-two", "+three", "-one", "+two"]
    assert states(server) == {"one": "unloaded", "two": "ready", "three": "ready"}
    assert server.request("/v1/models/one").json["state"] == "unloaded"
    assert server.request("/v1/models/two").json["max_model_len"] == 300
    assert [line["model"] for line in server.logged() if line["event"] == "unloaded"] == ["two", "one"]


def test_every_route_loads(server: RunningServer, loads: _Loads) -> None:
    messages = [{"role": "user", "content": "a"}]
    bodies: dict[str, Any] = {
        "/v1/chat/completions": {"messages": messages, "max_tokens": 2},
        "/v1/messages": {"messages": messages, "max_tokens": 2},
        "/v1/responses": {"input": "a", "max_output_tokens": 2},
        "/tokenize": {"prompt": "a"},
        "/apply-template": {"messages": messages},
    }
    for path, body in bodies.items():
        del loads.events[:]
        assert server.request(path, {"model": "one", **body}).status == 200, path
        assert loads.events == ["+one"]
        assert server.request("/models/unload", {"model": "one"}).json == {"success": True}
    assert server.request("/props?model=one").json["model_path"] == "one"
    assert loads.events[-1] == "+one"


def test_requests_for_one_model_wait_for_one_load(server: RunningServer, loads: _Loads) -> None:
    entered, go = threading.Event(), threading.Event()

    def wait(_: str) -> None:
        entered.set()
        go.wait(20)

    assert complete(server, "two").status == 200
    loads.before = wait
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(complete, server, "one") for _ in range(4)]
        assert entered.wait(20)
        assert states(server)["one"] == "loading"
        health = server.request("/health")
        assert (health.status, health.json["models"][0]["state"]) == (200, "loading")
        assert complete(server, "two").status == 200  # others answer meanwhile
        go.set()
        assert [one.result().status for one in asked] == [200] * 4
    assert loads.events == ["+two", "+one"]


def test_a_model_in_use_stays_until_its_requests_have_ended(server: RunningServer, loads: _Loads) -> None:
    loads.seconds = 0.02
    with ThreadPoolExecutor(2) as pool:
        running_ones = [pool.submit(complete, server, name, max_tokens=60) for name in ("one", "two")]
        while len(loads.events) < 2 or sum(one.running for one in server.service.models.figures().values()) < 2:
            time.sleep(0.005)
        busy = server.request("/models/unload", {"model": "one"})
        assert (busy.status, busy.error["code"]) == (409, "model_busy")
        assert complete(server, "three").status == 200  # it waits for one of them
        assert any(one.done() for one in running_ones)
        assert [one.result().status for one in running_ones] == [200, 200]
    assert loads.events[:2] in (["+one", "+two"], ["+two", "+one"])
    assert loads.events[3] == "+three"


def test_a_load_waits_for_memory_for_some_time(loads: _Loads) -> None:
    loads.seconds = 0.02
    sources = [loads.source(name, nbytes=20) for name in _NAMES]
    with running(sources, ServerOptions(port=0, models_memory=25), room_seconds=0.1) as server:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(complete, server, "one", max_tokens=100)
            while not server.service.models.figures():
                time.sleep(0.005)
            refused = complete(server, "two")
            assert (refused.status, refused.error["code"]) == (503, "models_busy")
            assert refused.headers["retry-after"] == "5"
            assert first.result().status == 200
        assert complete(server, "two").status == 200


def test_a_model_that_can_never_fit_is_refused(loads: _Loads) -> None:
    sources = [loads.source("pinned", on_demand=False, nbytes=20), loads.source("one"), loads.source("two", nbytes=5)]
    with running(sources, ServerOptions(port=0, models_memory=25)) as server:
        refused = complete(server, "one")
        assert (refused.status, refused.error["code"]) == (503, "model_too_large")
        assert "needs 10 bytes of memory, beside 20 bytes of models that stay loaded" in refused.error["message"]
        assert complete(server, "two").status == 200
        assert states(server) == {"pinned": "ready", "two": "ready", "one": "unloaded"}
        stays = server.request("/models/unload", {"model": "pinned"})
        assert (stays.status, "stays loaded" in stays.error["message"]) == (400, True)


def test_a_model_that_fails_is_tried_again_once_it_changes_or_is_asked_for(
    server: RunningServer, loads: _Loads
) -> None:
    loads.faults["one"] = InputError("the bundle is damaged")
    for _ in range(2):
        refused = complete(server, "one")
        assert (refused.status, refused.error["code"]) == (503, "model_failed")
        assert "the bundle is damaged" in refused.error["message"]
    assert sum(line["event"] == "load failed" for line in server.logged()) == 1
    assert states(server)["one"] == "failed"
    assert server.request("/health").status == 200
    del loads.faults["one"]
    assert complete(server, "one").status == 503
    loads.stamps["one"] = 2
    assert complete(server, "one").status == 200
    loads.faults["two"] = InputError("the bundle is damaged")
    assert complete(server, "two").status == 503
    del loads.faults["two"]
    assert server.request("/models/load", {"model": "two"}).json == {"success": True}
    assert complete(server, "two").status == 200


def test_names(server: RunningServer) -> None:
    unnamed = complete(server, None)
    assert (unnamed.status, "name one; available: one, two, three" in unnamed.error["message"]) == (400, True)
    for path in ("/v1/completions", "/models/load", "/models/unload"):
        unknown = server.request(path, {"model": "onee", "prompt": "a"} if "comp" in path else {"model": "onee"})
        assert unknown.status == 404
        assert "available: one, two, three; did you mean 'one'?" in unknown.error["message"]


def test_the_only_model_needs_no_name_and_a_second_name_loads_too(loads: _Loads) -> None:
    options = ServerOptions(port=0, model_aliases=(("other", "one"),))
    with running([loads.source("one")], options) as server:
        assert complete(server, None).status == 200
        assert server.request("/models/unload", {"model": "other"}).status == 200
        assert complete(server, "other").status == 200
    assert loads.events[:3] == ["+one", "-one", "+one"]


def test_idle_models_are_unloaded(loads: _Loads) -> None:
    sources = [loads.source("one", idle_seconds=0.2), loads.source("two")]
    with running(sources) as server:
        models = server.service.models
        assert models.unloads_idle
        for name in ("one", "two"):
            assert complete(server, name).status == 200
        models.unload_idle()
        assert "-one" not in loads.events
        time.sleep(0.25)
        models.unload_idle()
        assert states(server) == {"one": "unloaded", "two": "ready"}
        models.unload_idle()
        assert loads.events.count("-one") == 1


def test_a_reload_leaves_models_that_are_not_loaded(server: RunningServer, loads: _Loads) -> None:
    assert complete(server, "one").status == 200
    server.service.models.reload()
    assert loads.events[:2] == ["+one", "+one"]
    assert [event for event in loads.events if "two" in event] == []


def test_a_load_that_takes_too_long_goes_on(loads: _Loads) -> None:
    go = threading.Event()
    loads.before = lambda name: go.wait(20)
    with running([loads.source("one")], ServerOptions(port=0, request_seconds=0.2)) as server:
        late = complete(server, "one")
        assert (late.status, late.error["code"]) == (504, "deadline_exceeded")
        go.set()
        while states(server)["one"] != "ready":
            asyncio.run(asyncio.sleep(0.01))
        assert complete(server, "one").status == 200
    assert loads.events[0] == "+one"
