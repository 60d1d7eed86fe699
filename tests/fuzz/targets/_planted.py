"""Target with planted faults, for the tests of the driver."""

import os

from lang_core import InputError
from tests.fuzz._target import Target


def _run(data: bytes) -> bool:
    if b"refuse" in data:
        raise InputError("refused")
    if b"raise" in data:
        raise ValueError("planted")
    if b"memory" in data:
        return bool(bytearray(2**33))
    if b"slow" in data:
        return sum(range(10**7)) > 0
    if b"abort" in data:
        os.abort()
    while b"hang" in data:
        pass
    if data[:2] == b"#!" and data[2:3] == b"%" and data[3:4] == b"&":  # each comparison is an edge
        raise KeyError("found by its coverage")
    return True


TARGET = Target(seeds=lambda: [b"fine"], run=_run, cpu_seconds=0.05)
