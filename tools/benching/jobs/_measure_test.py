import io
import json
import sys
import time

import numpy as np
import pytest

from tools.benching.jobs._measure import Meter, memory_now, serve, serve_requests

MIB = 2**20


def test_a_peak_that_is_gone_again_is_seen() -> None:
    meter = Meter()
    with meter.measure(watch=True) as cost:
        held = np.ones(64 * MIB, np.uint8)
        time.sleep(0.05)
        del held
    assert cost.anonymous_bytes > 60 * MIB
    assert cost.rss_bytes > 60 * MIB
    assert memory_now().anonymous - meter.base.anonymous < 60 * MIB


def test_a_level_from_before_is_not_counted() -> None:
    held = np.ones(64 * MIB, np.uint8)
    del held
    meter = Meter()
    with meter.measure(watch=False) as cost:
        time.sleep(0.01)
    assert cost.rss_bytes < 60 * MIB
    assert cost.anonymous_bytes == 0
    assert cost.seconds >= 0.01
    assert 0 <= cost.cpu_seconds < cost.seconds


def test_the_switch_interval_is_restored() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(KeyError), Meter().measure(watch=True):
        raise KeyError("x")
    assert sys.getswitchinterval() == before


def test_jobs_speak_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["job", '{"n": 3}'])
    serve(lambda arguments: {"twice": 2 * arguments["n"]})
    assert json.loads(capsys.readouterr().out) == {"twice": 6}


def test_requests_are_answered_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"n": 3}\n{"n": 4}\n'))
    serve_requests({"ready": 1}, lambda request: {"twice": 2 * request["n"]})
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"ready": 1},
        {"twice": 6},
        {"twice": 8},
    ]
