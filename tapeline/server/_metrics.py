"""Metrics in Prometheus' text format, with vLLM's names for the same metrics."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from generation.engine import EngineFigures
from tapeline.server._answers import Answers

_SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LONG: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_MODEL: Final = "model_name"

_GAUGES: Final[Mapping[str, tuple[str, Callable[[EngineFigures], float]]]] = {
    "num_requests_running": ("Requests that have a slot.", lambda figures: figures.running),
    "num_requests_waiting": ("Requests that wait for a slot.", lambda figures: figures.waiting),
    "num_slots": ("Slots.", lambda figures: figures.slots),
    "kv_cache_usage_perc": (
        "Part of the caches' positions, or pages, in use, 0 to 1.",
        lambda figures: figures.cache_usage,
    ),
    "prefix_store_bytes": ("Bytes of the prefix store.", lambda figures: figures.store_bytes),
    "engine_up": ("1 while the engine's thread runs, 0 once it has ended.", lambda figures: figures.up),
    "prefix_store_budget_bytes": ("Bytes that the prefix store may take.", lambda figures: figures.store_budget),
}
_COUNTERS: Final[Mapping[str, tuple[str, Callable[[EngineFigures], float]]]] = {
    "prefix_cache_queries": ("Tokens of prompts that were looked up.", lambda figures: figures.prefix_queries),
    "prefix_cache_hits": ("Tokens of prompts that were reused.", lambda figures: figures.prefix_hits),
    "engine_prompt_tokens": ("Tokens of prompts that were computed.", lambda figures: figures.prompt_tokens),
    "spec_decode_num_draft_tokens": ("Tokens of drafts.", lambda figures: figures.draft_tokens),
    "spec_decode_num_accepted_tokens": (
        "Tokens of drafts that became tokens of answers.",
        lambda figures: figures.accepted_tokens,
    ),
    "engine_failures": ("Calls of the model that failed.", lambda figures: figures.failures),
}


class Metrics:
    """Metrics of one server.

    Args:
        figures: returns the figures of each model's engine, by the model's name.
        stalled: returns the time since each model's last progress, by the model's name; of embedders and others too.
        prefix: first part of each name.
    """

    def __init__(
        self,
        figures: Callable[[], Mapping[str, EngineFigures]],
        stalled: Callable[[], Mapping[str, float]],
        prefix: str = "tapeline:",
    ) -> None:
        self._registry: Final = CollectorRegistry()
        self._registry.register(_Engines(figures, stalled, prefix))
        named = {"labelnames": [_MODEL], "registry": self._registry}
        self._prompt: Final = Counter(f"{prefix}prompt_tokens", "Tokens of prompts.", **named)
        self._generated: Final = Counter(f"{prefix}generation_tokens", "New tokens.", **named)
        self._first: Final = Histogram(
            f"{prefix}time_to_first_token_seconds", "From the request to its first token.", buckets=_LONG, **named
        )
        self._between: Final = Histogram(
            f"{prefix}inter_token_latency_seconds", "From one token to the next.", buckets=_SHORT, **named
        )
        self._whole: Final = Histogram(
            f"{prefix}e2e_request_latency_seconds", "From the request to its last token.", buckets=_LONG, **named
        )
        self._ended: Final = Counter(
            f"{prefix}request_success",
            "Answers by how they ended.",
            [_MODEL, "finished_reason"],
            registry=self._registry,
        )
        self._responses: Final = Counter(
            f"{prefix}http_responses", "Responses by route and status.", ["route", "status"], registry=self._registry
        )
        self._ignored: Final = Counter(
            f"{prefix}ignored_fields", "Fields of requests that had no effect.", ["route"], registry=self._registry
        )

    def answered(self, model: str, answers: Answers, prompt_tokens: int) -> None:
        """Counts answers that have ended, or were given up."""
        self._prompt.labels(model).inc(prompt_tokens)
        for answer in answers.answers:
            self._generated.labels(model).inc(answer.text.tokens)
            if answer.finish_reason is not None:
                self._ended.labels(model, answer.finish_reason).inc()
            self._observe(model, answers.began, answer.times)

    def answered_whole(self, model: str, prompt_tokens: int, tokens: int, reason: str, seconds: float) -> None:
        """Counts an answer that came at once.

        Args:
            model: name of the model.
            prompt_tokens: number of tokens of the prompt.
            tokens: number of new tokens.
            reason: how the answer ended.
            seconds: from the request to the answer.
        """
        self._prompt.labels(model).inc(prompt_tokens)
        self._generated.labels(model).inc(tokens)
        self._ended.labels(model, reason).inc()
        self._whole.labels(model).observe(seconds)

    def responded(self, route: str, status: int) -> None:
        """Counts a response."""
        self._responses.labels(route, status).inc()

    def ignored(self, route: str, count: int) -> None:
        """Counts ignored fields of a request."""
        self._ignored.labels(route).inc(count)

    def text(self) -> bytes:
        """Returns all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _observe(self, model: str, began: float, times: list[float]) -> None:
        if not times:
            return
        self._first.labels(model).observe(times[0] - began)
        self._whole.labels(model).observe(times[-1] - began)
        between = self._between.labels(model)
        for earlier, later in pairwise(times):
            between.observe(later - earlier)


class _Engines(Collector):
    """Collector of the engines' figures, which are read when somebody asks."""

    def __init__(
        self,
        figures: Callable[[], Mapping[str, EngineFigures]],
        stalled: Callable[[], Mapping[str, float]],
        prefix: str,
    ) -> None:
        self._figures: Final = figures
        self._stalled: Final = stalled
        self._prefix: Final = prefix

    def collect(self) -> Iterable[Metric]:
        """Yields every metric of the engines."""
        figures = self._figures()
        yield from self._families(GaugeMetricFamily, _GAUGES, figures)
        yield from self._families(CounterMetricFamily, _COUNTERS, figures)
        yield self._ticks(figures)
        text = "Time since the last progress of the engine, or of the model's calls; 0 while it has no work."
        family = GaugeMetricFamily(f"{self._prefix}engine_stalled_seconds", text, labels=[_MODEL])
        for model, seconds in self._stalled().items():
            family.add_metric([model], seconds)
        yield family

    def _ticks(self, figures: Mapping[str, EngineFigures]) -> Metric:
        text = "Time of the engine's ticks, and of their parts: prefix, prefill, draft, decode, choose; tick is all."
        family = HistogramMetricFamily(f"{self._prefix}engine_tick_seconds", text, labels=[_MODEL, "part"])
        for model, figure in figures.items():
            for part, times in figure.tick_seconds.items():
                family.add_metric([model, part], list(times.cumulative()), times.seconds)
        return family

    def _families(
        self,
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
        table: Mapping[str, tuple[str, Callable[[EngineFigures], float]]],
        figures: Mapping[str, EngineFigures],
    ) -> Iterator[Metric]:
        for name, (text, value) in table.items():
            family = kind(f"{self._prefix}{name}", text, labels=[_MODEL])
            for model, figure in figures.items():
                family.add_metric([model], value(figure))
            yield family
