"""Dump of the tensors that a bundle's calls take, give and make on the way."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtime.dump import Dumper, DumpLimits
from tapeline.backends import Place, dumped_module
from tapeline.bundle import Bundle, dumping
from tapeline.cli import Progress, ProgressEvent

DUMP_LIMITS: Final = DumpLimits(256 * 2**20, 16 * 2**30)
"""Bytes of the largest tensor that is written, and of all of them, where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Options of a dump; docs/dump.md describes its contents.

    Attributes:
        directory: new or empty directory.
        level: 1 tagged tensors, 2 also arguments and results, 3 figures of all of them.
        limits: largest tensor that is written, and bytes in all.
    """

    directory: Path
    level: int = 1
    limits: DumpLimits = DUMP_LIMITS


@contextmanager
def dumper_of(bundle: Bundle, place: Place, dump: DumpOptions | None, progress: Progress) -> Iterator[Dumper | None]:
    """Opens the dumper of a session; None if nothing is to be dumped.

    Args:
        bundle: bundle that is run.
        place: engine and device.
        dump: options; None without a dump.
        progress: receives a summary of the dump at the end.

    Raises:
        InputError: the engine does not support dumps, the level is unknown or needs a debug module, or the directory
            cannot be written.
    """
    if dump is None:
        yield None
        return
    module = dumped_module(bundle, place)
    with dumping(
        bundle, dump.directory, device=place.name, level=dump.level, limits=dump.limits, module=module
    ) as dumper:
        yield dumper
    progress(ProgressEvent(f"dump: {dumper.totals.text()} in {dump.directory}"))
