"""Threads of a rank's devices take turns."""

import os
import threading

import pytest

from run_jax.processes._join import batch_threads

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no SCHED_BATCH")


def _policy_of_a_thread() -> int:
    policies: list[int] = []
    thread = threading.Thread(target=lambda: policies.append(os.sched_getscheduler(0)))
    thread.start()
    thread.join()
    return policies[0]


def test_threads_that_begin_inside_take_turns_and_others_do_not() -> None:
    before = os.sched_getscheduler(0)
    with batch_threads():
        assert _policy_of_a_thread() == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == before == _policy_of_a_thread()


def test_a_system_that_forbids_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    before = os.sched_getscheduler(0)
    with batch_threads():
        assert _policy_of_a_thread() == before


def test_a_policy_that_somebody_chose_stays() -> None:
    policies: list[int] = []

    def idle() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with batch_threads():
            policies.append(_policy_of_a_thread())

    thread = threading.Thread(target=idle)
    thread.start()
    thread.join()
    assert policies == [os.SCHED_IDLE]
