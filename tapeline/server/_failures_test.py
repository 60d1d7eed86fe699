"""Models that cannot be loaded, and engines that are stuck or dead: told by /health, and no other model is touched."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generation import Prediction
from lang_core import InputError, TapelineError
from tapeline.running import TextArray
from tapeline.running.transcribing import Transcription
from tapeline.server import EmbeddingModel, RankingModel, _answers
from tapeline.server._activity import Activity
from tapeline.server._model import ServedModel
from tapeline.server._models import ModelSource
from tapeline.server._options import ServerOptions
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._server_testing import VOCABULARY, RunningServer, running, text_model
from tapeline.server._transcription_model import TranscriptionModel
from tapeline.text import EncodedText

_ERRORS = [
    InputError("/secret/place/kernel_config.json: the file is damaged"),
    ZeroDivisionError("/secret/place"),
    RecursionError("/secret/place"),
    MemoryError(),
]


def _good(directory: Path, name: str = "good", slots: ScriptSlots | None = None) -> ModelSource:
    return ModelSource(name, lambda: text_model(directory, slots or ScriptSlots([5] * 64, VOCABULARY), name))


def _wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def _complete(server: RunningServer, model: str) -> Any:
    return server.request("/v1/completions", {"model": model, "prompt": "a", "max_tokens": 2})


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("first", [True, False])
def test_a_model_that_cannot_be_loaded_leaves_the_others(tmp_path: Path, error: Exception, first: bool) -> None:
    fails, stamp = [True], [1]

    def load() -> ServedModel:
        if fails[0]:
            raise error
        return text_model(tmp_path, ScriptSlots([5] * 64, VOCABULARY), "bad")

    bad = ModelSource("bad", load, lambda: stamp[0])
    sources = [bad, _good(tmp_path)] if first else [_good(tmp_path), bad]
    with running(sources) as server:
        models = server.service.models
        health = server.request("/health")
        assert (health.status, health.json["status"]) == (200, "ready")
        (listed,) = [model for model in server.request("/v1/models").json["data"] if model["id"] == "bad"]
        assert listed["state"] == "failed"
        assert health.json["models"] == [{"id": "bad", "state": "failed", "reason": listed["reason"]}]
        refused = _complete(server, "bad")
        assert (refused.status, refused.error["code"]) == (503, "model_failed")
        assert listed["reason"] in refused.error["message"]
        assert _complete(server, "good").status == 200
        assert "secret" not in f"{health.body!r}{listed}{refused.body!r}"
        faults = [line for line in server.logged() if line["event"] in ("load failed", "fault") and "traceback" in line]
        assert len(faults) == (not isinstance(error, InputError))
        assert len([line for line in server.logged() if line["event"] == "load failed"]) == 1
        models.reload(changed_only=True)  # nothing has changed
        assert len([line for line in server.logged() if line["event"] == "load failed"]) == 1
        fails[0], stamp[0] = False, 2
        models.reload(changed_only=True)
        assert _complete(server, "bad").status == 200
        assert "models" not in server.request("/health").json
        fails[0], stamp[0] = True, 3
        models.reload(changed_only=True)  # the one from before stays
        assert _complete(server, "bad").status == 200


def test_all_models_that_cannot_be_loaded_are_the_end(tmp_path: Path) -> None:
    def load() -> ServedModel:
        raise ZeroDivisionError

    with running([ModelSource("a", load), ModelSource("b", load)], load=False) as server:
        with pytest.raises(TapelineError, match="b cannot be loaded"):
            server.service.models.load()
        assert server.service.models.failure is not None
        assert [state.state for state in server.service.models.states()] == ["failed", "failed"]
        assert server.request("/health").json["status"] == "failed"


def test_a_look_at_a_bundle_that_fails_does_not_end_the_watching(tmp_path: Path) -> None:
    answers: list[Any] = [1, ValueError("/secret"), 2]

    def stamp() -> object:
        answer = answers.pop(0) if answers else 2
        if isinstance(answer, Exception):
            raise answer
        return answer

    loads: list[int] = []

    def load() -> ServedModel:
        loads.append(1)
        return text_model(tmp_path, ScriptSlots([5] * 64, VOCABULARY), "good")

    with running([ModelSource("good", load, stamp)]) as server:
        for _ in range(3):
            server.service.models.reload(changed_only=True)
        assert len(loads) == 2
        assert _complete(server, "good").status == 200


class _Stuck(ScriptSlots):
    """Slots whose steps do not return."""

    def __init__(self) -> None:
        super().__init__([5] * 64, VOCABULARY)
        self.go_on = threading.Event()

    def decode(self, rows: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Sequence[Prediction]:
        """Returns predictions when the test lets it."""
        self.go_on.wait()
        return super().decode(rows, token_ids, positions)


def test_an_engine_without_progress_is_told_by_health_and_metrics(tmp_path: Path) -> None:
    slots = _Stuck()
    options = ServerOptions(port=0, watchdog_seconds=0.1)
    with running([_good(tmp_path), _good(tmp_path, "stuck", slots)], options) as server:
        assert server.request("/health").status == 200  # an engine without work is not stuck
        answered: list[Any] = []
        asking = threading.Thread(target=lambda: answered.append(_complete(server, "stuck")))
        asking.start()
        try:
            _wait_until(lambda: server.request("/health").status == 503)
            _check_stuck(server)
        finally:
            slots.go_on.set()
        asking.join()
        assert answered[0].status == 200
        _wait_until(lambda: server.request("/health").status == 200)


def _check_stuck(server: RunningServer) -> None:
    health = server.request("/health").json
    assert health["status"] == "stuck"
    assert "no progress for" in health["reason"]
    assert [model["id"] for model in health["models"]] == ["stuck"]
    refused = _complete(server, "stuck")
    assert (refused.status, refused.error["code"]) == (503, "model_failed")
    assert _complete(server, "good").status == 200
    assert 'tapeline:engine_up{model_name="stuck"} 1.0' in server.request("/metrics").body.decode()
    assert _stalled(server)["stuck"] >= 0.1
    _wait_until(lambda: _stalled(server)["good"] == 0)  # its engine may still end the step of the answer


def test_a_request_to_a_stuck_engine_ends_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_answers, "_LATE", 0.1)
    slots = _Stuck()
    with running([_good(tmp_path, "stuck", slots)]) as server:
        try:
            for stream in (False, True):
                fields = {"model": "stuck", "prompt": "a", "max_tokens": 4, "timeout": 0.1, "stream": stream}
                answered = server.request("/v1/completions", fields)
                error = answered.events[-2]["error"] if stream else answered.error
                assert (answered.status, error["code"]) == (200 if stream else 504, "deadline_exceeded")
        finally:
            slots.go_on.set()


def test_a_dead_engine_is_told_by_health(tmp_path: Path) -> None:
    slots = ScriptSlots([5] * 64, VOCABULARY)
    with running([_good(tmp_path), _good(tmp_path, "dead", slots)]) as server:
        slots.fails = True
        assert _complete(server, "dead").status == 500
        _wait_until(lambda: server.request("/health").status == 503)
        assert _complete(server, "dead").status == 503
        assert _complete(server, "good").status == 200
        assert 'tapeline:engine_up{model_name="dead"} 0.0' in server.request("/metrics").body.decode()


class _StuckReader:
    """Embedder, reranker and speech model whose calls do not return until the test lets them."""

    similarity = "cosine"
    tokenizer: Any = None

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def embed(self, texts: Sequence[str], *, check: Callable[[], object], **_: Any) -> TextArray:
        """Returns a vector for each text."""
        self._wait(check)
        return TextArray.of(np.ones((len(texts), 2), np.float32), [EncodedText([0], [0])] * len(texts))

    def rerank(self, _: str, documents: Sequence[str], *, check: Callable[[], object], **__: Any) -> TextArray:
        """Returns a score for each document."""
        self._wait(check)
        return TextArray.of(np.ones((len(documents),), np.float32), [EncodedText([0], [0])] * len(documents))

    def pair_tokens(self, query: str, document: str) -> int:
        """Returns the number of letters."""
        return len(query) + len(document)

    def transcribe(self, _: bytes, *, check: Callable[[], object], **__: Any) -> Transcription:
        """Hears nothing."""
        self._wait(check)
        return Transcription(text="", segments=(), language=None, task="transcribe", duration=1.0)

    def close(self) -> None:
        """Frees nothing."""

    def _wait(self, check: Callable[[], object]) -> None:
        check()
        self.go_on.wait()
        check()


_EMBED = ("/v1/embeddings", {"input": ["a"]})
_RERANK = ("/v1/rerank", {"query": "a", "documents": ["a"]})
_FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--b--\r\n'
_COMMON: dict[str, Any] = {"name": "stuck", "created": 1, "context": 9}
_READERS: list[Any] = [
    (lambda reader: EmbeddingModel(**_COMMON, embedder=reader), _EMBED),
    (lambda reader: EmbeddingModel(**_COMMON, embedder=reader), _RERANK),
    (lambda reader: RankingModel(**_COMMON, ranker=reader), _RERANK),
    (lambda reader: TranscriptionModel(**_COMMON, reader=reader), ("/v1/audio/transcriptions", _FORM)),
]


@pytest.mark.parametrize(("model", "asked"), _READERS)
def test_every_kind_of_model_is_watched(tmp_path: Path, model: Callable[[Any], ServedModel], asked: Any) -> None:
    reader, (path, body) = _StuckReader(), asked
    kind = {"content-type": "multipart/form-data; boundary=b" if isinstance(body, bytes) else "application/json"}
    options = ServerOptions(port=0, watchdog_seconds=0.1)
    with running([_good(tmp_path), ModelSource("stuck", lambda: model(reader))], options) as server:
        assert server.request("/health").status == 200  # a model without work is not stuck
        answered: list[Any] = []
        asking = threading.Thread(target=lambda: answered.append(server.request(path, body, headers=kind)))
        asking.start()
        try:
            _wait_until(lambda: server.request("/health").status == 503)
            health = server.request("/health").json
            assert health["status"] == "stuck"
            assert "the model has made no progress for" in health["reason"]
            assert [one["id"] for one in health["models"]] == ["stuck"]
            assert _stalled(server)["stuck"] >= 0.1
            assert _stalled(server)["good"] == 0
            refused = server.request(path, body, headers=kind)
            assert (refused.status, refused.error["code"]) == (503, "model_failed")
            assert _complete(server, "good").status == 200
        finally:
            reader.go_on.set()
        asking.join()
        assert answered[0].status == 200, answered[0].body
        _wait_until(lambda: server.request("/health").status == 200)
        _wait_until(lambda: _stalled(server) == {"good": 0, "stuck": 0})


def _stalled(server: RunningServer) -> dict[str, float]:
    """Returns the time without progress of each model, as the metrics have it."""
    text = server.request("/metrics").body.decode()
    samples = re.findall(r'^tapeline:engine_stalled_seconds\{model_name="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {name: float(seconds) for name, seconds in samples}


def test_work_that_goes_on_is_not_stuck_however_long_it_takes() -> None:
    now = [100.0]
    activity = Activity(lambda: now[0])
    now[0] += 1000
    assert activity.fault(5) is None  # no work
    with activity.call():
        for _ in range(9):
            now[0] += 4
            assert activity.fault(5) is None
            activity.beat()
        now[0] += 6
        assert activity.fault(0) is None
        assert activity.fault(5) == "the model has made no progress for 6 s: a call of it does not return"
        with activity.call():  # another call begins
            assert activity.fault(5) is None
        now[0] += 6
        assert activity.fault(5) is not None
    assert activity.fault(5) is None


def test_clients_without_a_key_get_no_reasons(tmp_path: Path) -> None:
    slots = ScriptSlots([5] * 64, VOCABULARY)
    with running([_good(tmp_path, "dead", slots)], ServerOptions(port=0, api_keys=("key",))) as server:
        server.service.models.text_model("dead").engine.close()
        health = server.request("/health")
        assert health.status == 503
        assert health.json == {"status": "stuck", "reason": "an engine cannot answer"}
