"""Processes that step through the slots of a bundle."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.benching.suites._run import Runner, environment
from tools.benching.suites._stats import Summary
from tools.benching.suites._worker import Worker


def start_slots(runner: Runner, bundle: Path) -> Worker:
    """Starts a process that answers what ``jobs/slots.py`` says."""
    arguments = json.dumps({"bundle": str(bundle)})
    return Worker([sys.executable, "-m", "tools.benching.jobs.slots", arguments], environment(), runner.workdir)


def step_seconds(turn: Mapping[str, Any]) -> float:
    """Returns the median seconds of a turn's steps."""
    return Summary.of(turn["seconds"]).median
