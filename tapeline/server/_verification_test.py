"""A model that answers while its bundle is verified: health, requests, the verified bundle that takes over."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lang_core import ProcessError, VerificationError
from tapeline.server import ServerOptions, Verification
from tapeline.server._model import ServedModel
from tapeline.server._models import ModelSource
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, Answered, RunningServer, running, text_model

_DIFFERENCE = "device local-task, entry point 'decode', result 'logits' disagrees with the eager context: 0.2"
_KEY = "a-key"


class _Verified:
    """Source of a model that is being verified when it is loaded first, and is verified when it is loaded again."""

    def __init__(self, directory: Path) -> None:
        self.verification = Verification()
        self.loads = 0
        self._directory = directory

    def load(self) -> ServedModel:
        self.loads += 1
        if self.loads == 1:
            self.verification.begin()
        model = text_model(self._directory, ScriptSlots([5] * 64, VOCABULARY))
        return dataclasses.replace(model, created=self.loads)

    def source(self) -> ModelSource:
        return ModelSource("demo", self.load, verification=self.verification)


@pytest.fixture
def source(tmp_path: Path) -> _Verified:
    return _Verified(tmp_path)


@pytest.fixture
def server(source: _Verified) -> Iterator[RunningServer]:
    with running([source.source()]) as started:
        yield started


def _asked(server: RunningServer, model: str | None = "demo") -> Answered:
    body: dict[str, Any] = {"prompt": "It was", "max_tokens": 2} | ({} if model is None else {"model": model})
    return server.request("/v1/completions", body)


def test_the_server_answers_during_the_verification(server: RunningServer) -> None:
    health = server.request("/health")
    assert (health.status, json.loads(health.body)) == (200, {"status": "ready", "verification": "running"})
    assert _asked(server).status == 200


def test_the_verified_bundle_takes_over(server: RunningServer, source: _Verified) -> None:
    source.verification.end(None)
    assert source.loads == 2
    health = server.request("/health")
    assert (health.status, json.loads(health.body)) == (200, {"status": "ready", "verification": "passed"})
    assert json.loads(server.request("/v1/models/demo").body)["created"] == 2
    assert _asked(server).status == 200
    events = [json.loads(line) for line in server.log.getvalue().splitlines()]
    assert {"event": "verified", "model": "demo"}.items() <= events[2].items()


@pytest.mark.parametrize("model", ["demo", None])
def test_a_failed_verification_is_told(server: RunningServer, source: _Verified, model: str | None) -> None:
    source.verification.end(VerificationError(_DIFFERENCE))
    assert source.loads == 1
    answer = _asked(server, model)
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"]) == (503, "model_failed")
    assert error["message"] == f"model 'demo' cannot answer: verification failed: {_DIFFERENCE}"
    health = server.request("/health")
    body = json.loads(health.body)
    assert (health.status, body["status"], body["verification"]) == (503, "failed", "failed")
    assert body["models"][0]["reason"] == f"verification failed: {_DIFFERENCE}"
    (listed,) = json.loads(server.request("/v1/models").body)["data"]
    assert listed["state"] == "failed"
    assert '"event": "verification failed"' in server.log.getvalue()
    assert _DIFFERENCE in server.log.getvalue()


def test_a_client_without_a_key_does_not_see_the_difference(source: _Verified) -> None:
    with running([source.source()], ServerOptions(port=0, api_keys=(_KEY,))) as server:
        source.verification.end(VerificationError(_DIFFERENCE))
        body = json.loads(server.request("/health").body)
        assert (body["status"], body["verification"]) == ("failed", "failed")
        assert "logits" not in json.dumps(body)


def test_a_verification_that_could_not_end_has_failed(server: RunningServer, source: _Verified) -> None:
    source.verification.end(ValueError("a fault"))
    assert isinstance(source.verification.error, ProcessError)
    assert "the verification ended with ValueError: a fault" in json.loads(_asked(server).body)["error"]["message"]


def test_a_reload_after_a_failure_begins_anew(server: RunningServer, source: _Verified) -> None:
    source.verification.end(VerificationError(_DIFFERENCE))
    source.loads = 0
    server.service.models.reload()
    assert json.loads(server.request("/health").body) == {"status": "ready", "verification": "running"}
    assert _asked(server).status == 200
    source.verification.end(None)
    assert source.loads == 2


def test_a_verified_bundle_that_cannot_be_loaded_leaves_the_model(server: RunningServer, source: _Verified) -> None:
    source.loads = 0

    def refused() -> ServedModel:
        raise ProcessError("no memory")

    object.__setattr__(server.service.models._sources[0], "load", refused)
    source.verification.end(None)
    assert _asked(server).status == 200
    assert "reload failed" in server.log.getvalue()


def test_no_model_is_loaded_again_when_the_server_ends(server: RunningServer, source: _Verified) -> None:
    server.service.models.end_loading()
    source.verification.end(None)
    assert source.loads == 1


def test_a_load_that_the_server_ends_has_not_failed(server: RunningServer, source: _Verified) -> None:
    def ended() -> ServedModel:
        server.service.models.end_loading()
        raise ProcessError("the export was ended")

    object.__setattr__(server.service.models._sources[0], "load", ended)
    source.verification.end(None)
    assert "reload failed" not in server.log.getvalue()
