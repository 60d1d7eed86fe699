"""Sampling of requests: what a request gives, and the model's defaults for the rest, on every route."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation import DEFAULT_SAMPLING, SamplingConfig
from generation.engine import Event, Ticket, TokenRequest
from tapeline.server._models import ModelSource
from tapeline.server._script_slots_testing import ScriptSlots
from tapeline.server._scripted_server_testing import HELLO
from tapeline.server._server_testing import VOCABULARY, RunningServer, running, text_model

_OWN = SamplingConfig(temperature=0.6, top_k=20, top_p=0.9, min_p=0.0, repetition_penalty=1.1)
_GREEDY = replace(DEFAULT_SAMPLING, temperature=0.0)
_DEFAULTS = {"silent": DEFAULT_SAMPLING, "own": _OWN, "greedy": _GREEDY}
_ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello"},
}
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from([0, 0.5, 1, 2.5]),
    "top_k": st.sampled_from([-1, 0, 1, 50]),
    "top_p": st.sampled_from([0, 0.5, 1]),
    "min_p": st.sampled_from([0, 0.25, 1]),
    "repetition_penalty": st.sampled_from([0.5, 1, 1.5]),
    "presence_penalty": st.sampled_from([-1, 0, 1.5]),
    "frequency_penalty": st.sampled_from([-1, 0, 1.5]),
}


class Listener:
    """Engine that notes the sampling of what it is asked.

    Args:
        engine: engine that answers.
        heard: receives the sampling of each request.
    """

    def __init__(self, engine: Any, heard: list[SamplingConfig]) -> None:
        self._engine, self._heard = engine, heard

    def submit(self, request: TokenRequest, on_event: Callable[[Event], None]) -> Ticket:
        """Notes a request, and asks for its answer."""
        self._heard.append(request.sampling)
        return self._engine.submit(request, on_event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.fixture(scope="module")
def heard() -> list[SamplingConfig]:
    return []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, heard: list[SamplingConfig]) -> Iterator[RunningServer]:
    sources: list[ModelSource] = []
    for name, defaults in _DEFAULTS.items():
        model = text_model(tmp_path_factory.mktemp(name), ScriptSlots([5] * 64, VOCABULARY), name)
        listened = replace(model, defaults=defaults, engine=Listener(model.engine, heard))
        sources.append(ModelSource(name, lambda model=listened: model))
    with running(sources) as started:
        yield started


def _sampling(server: RunningServer, heard: list[SamplingConfig], route: str, **fields: Any) -> SamplingConfig:
    """Returns the sampling of a request, which must be answered."""
    heard.clear()
    answered = server.request(route, {**_ROUTES[route], "max_tokens": 1, **fields})
    assert answered.status == 200, answered.body
    return heard[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", _ROUTES)
@pytest.mark.parametrize("name", _DEFAULTS)
def test_a_request_without_sampling_has_the_models(
    name: str, route: str, stream: bool, server: RunningServer, heard: list[SamplingConfig]
) -> None:
    sampling = _sampling(server, heard, route, model=name, seed=7, stream=stream)
    assert sampling == replace(_DEFAULTS[name], seed=7)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(_DEFAULTS)), st.sampled_from(sorted(_ROUTES)), st.fixed_dictionaries({}, optional=_FIELDS)
)
def test_a_request_keeps_the_defaults_of_what_it_leaves_out(
    server: RunningServer, heard: list[SamplingConfig], name: str, route: str, fields: dict[str, Any]
) -> None:
    nulls = {key: None for key in ("temperature", "top_p") if key not in fields}
    sampling = _sampling(server, heard, route, model=name, seed=3, **fields, **nulls)
    given_fields = {**fields, **({"top_k": max(0, fields["top_k"])} if "top_k" in fields else {})}
    assert sampling == replace(_DEFAULTS[name], seed=3, **given_fields)


def test_requests_without_a_seed_have_different_ones(server: RunningServer, heard: list[SamplingConfig]) -> None:
    route = "/v1/chat/completions"
    assert len({_sampling(server, heard, route, model="silent").seed for _ in range(8)}) > 1


def test_the_list_of_models_says_what_is_used(server: RunningServer) -> None:
    models = {model["id"]: model["sampling"] for model in server.request("/v1/models").json["data"]}
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    assert models == {name: {key: getattr(config, key) for key in names} for name, config in _DEFAULTS.items()}
    assert models["silent"] == {
        "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.0
    }  # fmt: skip
    assert server.request("/v1/models/own").json["sampling"]["temperature"] == 0.6
