"""Where a lowered entry point first departs from a reference: block, op, module path and Python line."""

from tapeline.divergence._locate import locate
from tapeline.divergence._references import EagerReference, Reference, RunnerReference
from tapeline.divergence._runners import DeviceRunner, InterpreterRunner, Runner

__all__ = [
    "DeviceRunner",
    "EagerReference",
    "InterpreterRunner",
    "Reference",
    "Runner",
    "RunnerReference",
    "locate",
]
