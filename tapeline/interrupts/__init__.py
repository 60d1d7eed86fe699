"""Ctrl-C: ends a program within a bounded time, with one line on stderr and exit code 130."""

from tapeline.interrupts._guard import (
    EXIT_INTERRUPTED,
    end_interrupted,
    first_deferred,
    other_handlers,
    received,
    run_program,
    say_interrupted,
)
from tapeline.interrupts._processes import Deadline, end_at_once, kill_descendants
