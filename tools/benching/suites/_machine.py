"""Which machine a figure is from: what matters for speed, and no name of the machine."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = ("numpy", "jax")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, and the software that matters.

    Attributes:
        cpu: the model as the kernel names it.
        cores: how many this process may use.
        memory_bytes: all of it.
        kernel: its name and release.
        versions: of Python and the packages that are measured.
    """

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    versions: dict[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        memory = f"{self.memory_bytes / 2**30:.0f} GiB"
        return f"{self.cpu}, {self.cores} cores, {memory}, {self.kernel}; {versions}"


def this_machine() -> Machine:
    """Describes the machine that runs this."""
    return Machine(
        cpu=cpu_name(Path("/proc/cpuinfo").read_text()),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        versions={"Python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in _PACKAGES},
    )


def cpu_name(cpuinfo: str) -> str:
    """The model's name, with family and model numbers, for names alone say little on rented machines."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    name = fields.get("model name", platform.machine())
    numbers = [f"{key.split()[-1]} {fields[key]}" for key in ("cpu family", "model") if key in fields]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def load_average() -> float:
    """Processes that wanted a core, on average over the last minute."""
    return os.getloadavg()[0]
