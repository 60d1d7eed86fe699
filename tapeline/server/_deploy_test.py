"""Probes and autoscaling of ``deploy`` name routes and metrics that the server has."""

import re
from pathlib import Path
from typing import Final

from tapeline.server._app import ROUTES
from tapeline.server._metrics import Metrics

_FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy"


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def test_probes_ask_for_routes_of_the_server() -> None:
    manifest = _text("kubernetes.yaml")
    probes = re.findall(r"httpGet: \{path: (/\w+), port: http\}", manifest)
    scraped = re.findall(r"prometheus\.io/path: (/\w+)", manifest)
    health = re.findall(r"http://127\.0\.0\.1:\d+(/\w+)", _text("Dockerfile"))
    assert (len(probes), len(scraped), len(health)) == (3, 1, 1)
    assert {*probes, *scraped, *health} == {"/live", "/health", "/metrics"}
    assert {*probes, *scraped, *health} <= {route.path for route in ROUTES}


def test_autoscaling_is_by_a_metric_of_the_server() -> None:
    rule = _text("prometheus-adapter.yaml")
    (series,) = re.findall(r'__name__="([^"]+)"', rule)
    (name,) = re.findall(r"name: \{as: (\w+)\}", rule)
    exposed = Metrics(dict, dict).text().decode()
    assert re.search(rf"(?m)^# TYPE {re.escape(series)} gauge$", exposed)
    assert f"metric: {{name: {name}}}" in _text("kubernetes.yaml")
