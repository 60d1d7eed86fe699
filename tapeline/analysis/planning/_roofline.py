"""Roofline: the least time that a device needs for some work (Williams et al. 2009, doi:10.1145/1498765.1498785)."""

from typing import NamedTuple

from tapeline.analysis.counting import Collective, Work
from tapeline.analysis.planning._hardware import Hardware


class Times(NamedTuple):
    """Least seconds of one call.

    Attributes:
        compute: of additions and multiplications.
        memory: of reading and writing memory.
        link: of exchanges between devices.
    """

    compute: float
    memory: float
    link: float

    @property
    def total(self) -> float:
        """Seconds of the call: computing hides memory or is hidden by it, exchanges are waited for."""
        return max(self.compute, self.memory) + self.link

    @property
    def bound(self) -> str:
        """Name of the greatest of the three."""
        return max(self._fields, key=lambda name: getattr(self, name))


def times(work: Work, hardware: Hardware) -> Times:
    """Returns the least times of some work on one device."""
    return Times(
        sum(count / hardware.peak(dtype) for dtype, count in work.flops.items()),
        work.memory_bytes / hardware.memory_bandwidth,
        sum(count * _exchange(collective, hardware) for collective, count in work.calls.items()),
    )


def sent_bytes(collective: Collective) -> float:
    """Returns the bytes that a device sends in a ring: nearly twice the result's for a sum, nearly once otherwise."""
    rounds = 2 if collective.kind == "all-reduce" else 1
    return rounds * (collective.devices - 1) / collective.devices * collective.bytes


def _exchange(collective: Collective, hardware: Hardware) -> float:
    if hardware.link_bandwidth is None:
        return 0
    steps = (2 if collective.kind == "all-reduce" else 1) * (collective.devices - 1)
    latency = hardware.collective_latency + steps * hardware.link_latency
    return latency + sent_bytes(collective) / hardware.link_bandwidth
