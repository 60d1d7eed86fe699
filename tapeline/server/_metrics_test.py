"""The dashboard names metrics that there are."""

import dataclasses
import json
import re
from pathlib import Path

from generation.engine import EngineFigures, PartTimes
from tapeline.server._metrics import Metrics

FIGURES = EngineFigures(
    running=1,
    waiting=2,
    slots=4,
    cache_usage=0.5,
    prefix_queries=10,
    prefix_hits=5,
    prompt_tokens=5,
    generated_tokens=7,
    draft_tokens=6,
    accepted_tokens=4,
    ended={},
    failures=0,
    store_bytes=3,
    store_budget=9,
)


def names(metrics: Metrics) -> set[str]:
    """Returns every name in the metrics' text, those of families without samples too."""
    text = metrics.text().decode()
    families = {(name, kind) for name, kind in re.findall(r"^# TYPE (\S+) (\w+)", text, re.M)}
    return {f"{name}{end}" for name, kind in families for end in (("", "_bucket") if kind == "histogram" else ("",))}


def test_the_dashboard_names_metrics_that_there_are() -> None:
    text = Path(__file__).with_name("grafana.json").read_text()
    named = set(re.findall(r"tapeline:\w+", text))
    assert len(named) >= 12
    assert named <= names(Metrics(lambda: {"demo": FIGURES}, dict))
    assert len({panel["id"] for panel in json.loads(text)["panels"]}) == 12


def test_the_dashboard_has_every_metric() -> None:
    """A histogram is there by its buckets; a model's answers with adapters count as its own."""
    text = Path(__file__).with_name("grafana.json").read_text()
    named = set(re.findall(r"tapeline:\w+", text))
    there = names(Metrics(lambda: {"demo": FIGURES}, dict))
    totals = {name for name in there if not name.endswith("_bucket") and f"{name}_bucket" not in there}
    assert totals - {name for name in totals if name.endswith("_created")} <= named
    assert {name for name in there if name.endswith("_bucket")} <= named
    of_answers = re.findall(r"tapeline:(?:generation_tokens_total|e2e_request_latency_seconds_bucket){(.*?)}", text)
    assert of_answers
    assert all("$model(:.*)?" in labels for labels in of_answers)


def test_figures_of_each_engine_have_its_name() -> None:
    text = Metrics(lambda: {"one": FIGURES, "two": FIGURES}, dict).text().decode()
    assert 'tapeline:num_requests_waiting{model_name="two"} 2.0' in text
    assert 'tapeline:prefix_cache_hits_total{model_name="one"} 5.0' in text
    assert 'tapeline:kv_cache_usage_perc{model_name="one"} 0.5' in text


def test_times_of_ticks_are_histograms_by_their_parts() -> None:
    times = PartTimes((0, 3, 0, 1, *[0] * 10, 1), 7.5)
    figures = dataclasses.replace(FIGURES, tick_seconds={"decode": times, "tick": times})
    text = Metrics(lambda: {"one": figures}, dict).text().decode()
    for bound, count in (("0.0001", 0), ("0.00025", 3), ("0.001", 4), ("2.5", 4), ("+Inf", 5)):
        assert f'tapeline:engine_tick_seconds_bucket{{le="{bound}",model_name="one",part="decode"}} {count}.0' in text
    assert 'tapeline:engine_tick_seconds_sum{model_name="one",part="tick"} 7.5' in text
    assert 'tapeline:engine_tick_seconds_count{model_name="one",part="tick"} 5.0' in text
