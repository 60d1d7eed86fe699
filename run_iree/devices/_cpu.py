"""This machine's CPU, as bundles record it."""

import dataclasses
import functools
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class CpuRecord:
    """CPU that a module was compiled for, as a bundle records it.

    Attributes:
        target: name given to the compiler, for example ``host`` or ``generic``.
        name: model name of the compiling machine's CPU if the target is ``host``, else the target.
        features: instruction-set flags of that CPU if the target is ``host``, else empty (unknown).
    """

    target: str
    name: str
    features: tuple[str, ...]

    def missing_here(self) -> tuple[str, ...]:
        """Returns the recorded features that the CPU of this machine lacks."""
        here = frozenset(host_cpu().features)
        return tuple(feature for feature in self.features if feature not in here)


@functools.cache
def host_cpu() -> CpuRecord:
    """Returns this machine's CPU; name and features are empty if /proc/cpuinfo lacks them."""
    fields: dict[str, str] = {}
    path = Path("/proc/cpuinfo")
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    features = fields.get("flags") or fields.get("Features") or ""
    return CpuRecord("host", fields.get("model name", ""), tuple(sorted(features.split())))
