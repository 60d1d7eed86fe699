import time

import numpy as np
import pytest

from tapeline.bundle import PhaseMeter, memory_now

_MEBI = 2**20


def test_memory_is_what_linux_says() -> None:
    now = memory_now()
    assert now.rss >= now.anonymous > _MEBI
    with open("/proc/self/status") as status:
        resident = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))
    assert abs(now.rss - resident) < 16 * _MEBI


def test_a_phase_keeps_its_peak_though_the_memory_is_gone_at_its_end() -> None:
    meter = PhaseMeter()
    with meter.phase("lower"):
        held = np.ones(64 * _MEBI, np.uint8)
        time.sleep(0.05)
        del held
    cost = meter.phases["lower"]
    assert cost.seconds >= 0.05
    assert 50 * _MEBI < cost.anonymous_delta_bytes < 100 * _MEBI
    assert cost.rss_delta_bytes > 50 * _MEBI
    with meter.phase("verify"):
        time.sleep(0.01)
    assert meter.phases["verify"].anonymous_delta_bytes < 40 * _MEBI


def test_a_phase_entered_again_adds_its_time() -> None:
    meter = PhaseMeter()
    for _ in range(2):
        with meter.phase("compile"):
            time.sleep(0.02)
    assert list(meter.phases) == ["compile"]
    assert meter.phases["compile"].seconds >= 0.04


def test_a_phase_that_fails_is_measured_too() -> None:
    meter = PhaseMeter()

    def fail() -> None:
        with meter.phase("load"):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert meter.phases["load"].seconds > 0
