"""What is remembered of a choice."""

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from autotune.caches._codec import encode
from autotune.kernel import KernelError

Cfg = TypeVar("Cfg")

# Where a configuration comes from.
TUNED: Final = "tuned"
HEURISTIC: Final = "heuristic"
OVERRIDE: Final = "override"
PINNED: Final = "pinned"
OVERLAY: Final = "overlay"
PROVENANCES: Final = (TUNED, HEURISTIC, OVERRIDE, PINNED, OVERLAY)

# What became of a candidate.
OK: Final = "ok"
FAILED: Final = "failed"
REJECTED: Final = "rejected"
SKIPPED: Final = "skipped"


class Key(NamedTuple):
    """What decides about a configuration.

    Attributes:
        device: an ``Environment.fingerprint``.
        op: ``op_id@vVERSION``.
        call: an ``Invocation.call_key``.
        source: a hash of the kernel's source; empty where somebody wrote the entry by hand, for any source.
    """

    device: str
    op: str
    call: str
    source: str = ""


@dataclass(frozen=True)
class Measurement:
    """One candidate.

    Attributes:
        cfg: the configuration.
        seconds: of one call, the smallest of several rounds; inf where there is none.
        status: ``ok``, ``failed``, ``rejected`` (another result than the reference's) or ``skipped`` (failed before).
        detail: why, where it is not ok.
    """

    cfg: Any
    seconds: float
    status: str = OK
    detail: str = ""


@dataclass
class AutotuneData(Generic[Cfg]):
    """What a tuning found.

    Attributes:
        measurements: of all candidates, in their order.
        best: the chosen one; None where none is good. The reference wins a tie.
        reference: what the others' results were compared with.
    """

    measurements: list[Measurement]
    best: Measurement | None = None
    reference: Measurement | None = None

    @property
    def fastest_config(self) -> Any:
        """The fastest of those that computed the right thing.

        Raises:
            KernelError: there is none.
        """
        good = [each for each in self.measurements if each.status == OK]
        if not good:
            raise KernelError(f"no candidate is good: {self.reasons() or 'there is none'}")
        return min(good, key=lambda each: each.seconds).cfg

    def reasons(self) -> str:
        """What is wrong with those that are not ok."""
        bad = [each for each in self.measurements if each.status != OK]
        return "; ".join(f"{each.cfg}: {each.status}: {each.detail}" for each in bad)


@dataclass(frozen=True)
class CacheEntry(Generic[Cfg]):
    """A configuration with its history.

    Attributes:
        key: what it is for.
        cfg: the configuration.
        provenance: ``tuned``, ``heuristic`` or ``pinned``.
        measurements: of all candidates; empty where nobody measured.
        environment: device, versions and flags, in words.
        specs: of the call, in words.
        kernel: the class, as ``module:name``.
        created: when, in seconds since 1970.
    """

    key: Key
    cfg: Cfg
    provenance: str = TUNED
    measurements: tuple[Measurement, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    specs: Any = None
    kernel: str = ""
    created: float = field(default_factory=time.time)


class Selection(NamedTuple):
    """A choice, and why.

    Attributes:
        cfg: the configuration.
        tier: ``override``, ``overlay``, ``memory``, ``persistent``, ``autotune`` or ``heuristics``.
        key: of the call.
        entry: what is remembered of it; None for an override or overlay.
        passed: of each tier before, why it had nothing; filled where a hit is no memory hit.
    """

    cfg: Any
    tier: str
    key: Key
    entry: CacheEntry[Any] | None = None
    passed: tuple[tuple[str, str], ...] = ()

    @property
    def provenance(self) -> str:
        """``tuned``, ``pinned`` or ``heuristic``, whatever remembered it; ``override`` or ``overlay``."""
        return self.tier if self.entry is None else self.entry.provenance


def cfg_name(cfg: Any) -> str:
    """A configuration as text, the same for equal ones; of a class that is none of data, by its attributes."""
    try:
        return json.dumps(encode(cfg), sort_keys=True, separators=(",", ":"))
    except KernelError:  # it cannot be written to disk, and may serve in memory all the same
        attributes = getattr(cfg, "__dict__", None)
        return repr(cfg) if attributes is None else f"{type(cfg).__qualname__}({attributes!r})"
