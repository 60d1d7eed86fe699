"""Keys and entries of caches, and measurements of candidates."""

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from autotune.caches._codec import encode
from autotune.kernel import KernelError, stable_json

Cfg = TypeVar("Cfg")

TUNED: Final = "tuned"
"""Provenance of a configuration that was the quickest of those that were timed."""
HEURISTIC: Final = "heuristic"
"""Provenance of a configuration that the kernel's rule of thumb gave."""
OVERRIDE: Final = "override"
"""Provenance of a configuration that the caller gave for one call."""
PINNED: Final = "pinned"
"""Provenance of a configuration that was put into a cache by hand."""
OVERLAY: Final = "overlay"
PROVENANCES: Final = (TUNED, HEURISTIC, OVERRIDE, PINNED, OVERLAY)

# Status of a candidate.
OK: Final = "ok"
"""Status of a candidate that was timed and agreed."""
FAILED: Final = "failed"
"""Status of a candidate that raised."""
REJECTED: Final = "rejected"
"""Status of a candidate whose results differ from the reference."""
SKIPPED: Final = "skipped"
"""Status of a candidate that was not tried."""


class Key(NamedTuple):
    """Key of a configuration.

    Attributes:
        device: ``Environment.fingerprint``.
        op: ``op_id@vVERSION``.
        call: ``Invocation.call_key``.
        source: hash of the kernel's source; empty in an entry that was written by hand, which fits any source.
    """

    device: str
    op: str
    call: str
    source: str = ""


@dataclass(frozen=True)
class Measurement:
    """Measurement of one candidate.

    Attributes:
        cfg: configuration.
        seconds: time of one call, the minimum over rounds; inf if it was not timed.
        status: ``ok``, ``failed``, ``rejected`` (its result is not the reference's) or ``skipped`` (failed before).
        detail: reason for a status other than ``ok``, or for a gain that was not confirmed.
    """

    cfg: Any
    seconds: float
    status: str = OK
    detail: str = ""


@dataclass
class AutotuneData(Generic[Cfg]):
    """Result of tuning one call.

    Attributes:
        measurements: measurements of all candidates, in order.
        best: chosen candidate; None if none is good. The reference wins a tie.
        reference: candidate that the results of the others were compared with.
    """

    measurements: list[Measurement]
    best: Measurement | None = None
    reference: Measurement | None = None

    @property
    def fastest_config(self) -> Any:
        """Configuration of the fastest candidate with a correct result.

        Raises:
            KernelError: all candidates failed.
        """
        good = [measurement for measurement in self.measurements if measurement.status == OK]
        if not good:
            raise KernelError(f"no candidate is good: {self.reasons() or 'there are no candidates'}")
        return min(good, key=lambda measurement: measurement.seconds).cfg

    def reasons(self) -> str:
        """Returns the reasons of all candidates that are not ok, as text."""
        bad = [measurement for measurement in self.measurements if measurement.status != OK]
        return "; ".join(f"{one.cfg}: {one.status}: {one.detail}" for one in bad)


@dataclass(frozen=True)
class CacheEntry(Generic[Cfg]):
    """Remembered configuration with its history.

    Attributes:
        key: key of the call.
        cfg: configuration.
        provenance: ``tuned``, ``heuristic`` or ``pinned``.
        measurements: measurements of all candidates; empty if nothing was measured.
        environment: fields of the ``Environment``, for people.
        specs: arguments of the call as JSON values, for people.
        kernel: class of the kernel, as ``module:name``.
        created: time of the choice, in seconds since 1970.
    """

    key: Key
    cfg: Cfg
    provenance: str = TUNED
    measurements: tuple[Measurement, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    specs: Any = None
    kernel: str = ""
    created: float = field(default_factory=time.time)


class Selection(NamedTuple, Generic[Cfg]):
    """Chosen configuration, and the reason.

    Attributes:
        cfg: configuration.
        tier: ``override``, ``overlay``, ``memory``, ``persistent``, ``autotune`` or ``heuristics``.
        key: key of the call.
        entry: entry of a cache; None for an override or overlay.
        passed: (tier, reason) of each earlier tier that had nothing; empty for a hit in memory.
    """

    cfg: Cfg
    tier: str
    key: Key
    entry: CacheEntry[Cfg] | None = None
    passed: tuple[tuple[str, str], ...] = ()

    @property
    def provenance(self) -> str:
        """Provenance of the entry, whichever cache had it; else ``override`` or ``overlay``."""
        return self.tier if self.entry is None else self.entry.provenance


def cfg_name(cfg: Any) -> str:
    """Returns a configuration as text, the same for equal ones; an object that JSON cannot hold by its attributes."""
    try:
        return json.dumps(encode(cfg), sort_keys=True, separators=(",", ":"))
    except KernelError:  # it cannot be written to disk, and is usable in memory all the same
        attributes = getattr(cfg, "__dict__", None)
    try:
        return stable_json(cfg)
    except KernelError:  # of a class that has no description
        return f"{type(cfg).__qualname__}({attributes!r})" if attributes else repr(cfg)
