"""Scheduling of the thread that calls a session's functions."""

import contextlib
import os


def let_workers_run() -> None:
    """Makes the calling thread wait for a free core when it wakes up, so that it takes none from IREE's workers.

    There is a worker for each core, and the caller wakes up while they work: a tenth of the steps took a quarter
    longer. It is ``SCHED_BATCH`` (Linux, sched(7)); threads that are started later have it too. A thread of another
    policy than the usual one keeps it, and so does one that may not change it.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(PermissionError):  # a sandbox forbids it: steps are as they were
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
