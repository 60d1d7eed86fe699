"""The calling thread waits for a free core."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tapeline.running import let_workers_run

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="this system has no SCHED_BATCH")


def _policies(first: int) -> tuple[int, int]:
    """Returns the policies of a thread before and after the call."""
    os.sched_setscheduler(0, first, os.sched_param(0))
    before = os.sched_getscheduler(0)
    let_workers_run()
    return before, os.sched_getscheduler(0)


@pytest.mark.parametrize(("first", "then"), [("SCHED_OTHER", "SCHED_BATCH"), ("SCHED_IDLE", "SCHED_IDLE")])
def test_the_calling_thread_alone_waits_and_keeps_a_policy_of_its_own(first: str, then: str):
    here = os.sched_getscheduler(0)
    with ThreadPoolExecutor(1) as pool:
        actual = pool.submit(_policies, getattr(os, first)).result()
    assert actual == (getattr(os, first), getattr(os, then))
    assert os.sched_getscheduler(0) == here


def test_where_it_is_forbidden_nothing_changes(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
        pool.submit(let_workers_run).result()
