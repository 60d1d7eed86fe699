"""The weights of an export: in an archive, or in the module's text."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from compile_hlo import LoweredModule
from compile_hlo.emit import ExternalParameters, Form, InlineParameters
from lang_core import CheckpointError, TensorSpec, WeightSource
from run_iree.archive import (
    ArchiveEntry,
    ArchiveJournal,
    ArchiveLayout,
    NonFinite,
    Pieces,
    WrittenArchive,
    archive_layout,
    partial_name,
    write_archive,
)
from tapeline.bundle import ARCHIVE, SCOPE
from tapeline.cli import Progress, ProgressEvent

_JOURNAL: Final = "weights.journal"

# What a killed export may leave of an archive.
UNFINISHED: Final = (ARCHIVE, partial_name(ARCHIVE), _JOURNAL)


class _Entries(Collection[ArchiveEntry]):
    """Entries of the archive, made as they are gone through: a large model has thousands."""

    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self._specs: Final = specs

    def __len__(self) -> int:
        return len(self._specs)

    def __iter__(self) -> Iterator[ArchiveEntry]:
        return (ArchiveEntry(path, path, spec) for path, spec in self._specs.items())

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, ArchiveEntry) and entry in iter(self)


def archive_entries(lowered: LoweredModule) -> Collection[ArchiveEntry]:
    """Returns the entries of the archive."""
    return _Entries(lowered.parameters())


def layout_of(lowered: LoweredModule) -> ArchiveLayout:
    """Returns the layout of the archive."""
    return archive_layout(archive_entries(lowered))


def form_of(weights: str, source: WeightSource | None, nonfinite: dict[str, Any]) -> Form:
    """Returns the form in which parameters come into the module.

    Args:
        weights: value of the option ``weights``.
        source: the checkpoint.
        nonfinite: takes the NaNs and infinities of each parameter that becomes text.
    """
    if weights != "inline":
        return ExternalParameters(SCOPE)
    if source is None:
        raise CheckpointError("weights=inline needs the checkpoint's weights")
    pieces = Pieces(source)

    def read(path: str, spec: TensorSpec) -> Iterator[np.ndarray]:
        nan = inf = 0
        for piece, counts in pieces.read(ArchiveEntry(path, path, spec)):
            nan, inf = nan + counts.nan, inf + counts.inf
            yield piece
        if nan or inf:
            nonfinite[path] = NonFinite(nan, inf)._asdict()

    return InlineParameters(read)


def write_weights(
    lowered: LoweredModule, source: WeightSource, staging: Path, key: str, chunk_bytes: int, progress: Progress
) -> WrittenArchive:
    """Writes the archive, or goes on where a killed export was with one of the same key."""
    journal = ArchiveJournal(staging / _JOURNAL, key)
    return write_archive(
        staging / ARCHIVE,
        archive_entries(lowered),
        source,
        chunk_bytes=chunk_bytes,
        progress=lambda done, total: progress(ProgressEvent("weights", done, total)),
        journal=journal,
    )


def warn(nonfinite: Mapping[str, Mapping[str, int]], weights: WeightSource, progress: Progress) -> None:
    """Warns of parameters with NaNs or infinities.

    Raises:
        CheckpointError: such a parameter is packed in the checkpoint, so that a scale of it is damaged.
    """
    for name, by_kind in nonfinite.items():
        counts = ", ".join(f"{count} {kind}" for kind, count in by_kind.items() if count)
        if (encoding := weights.encoding(name)) is not None:
            raise CheckpointError(
                f"parameter {name!r} in {weights.origin(name)} is packed as {encoding} and has {counts}: a scale is no "
                "finite number: the file is damaged: download or convert it again"
            )
        text = f"warning: parameter {name} in {weights.origin(name)} has {counts}: kept exactly as stored"
        progress(ProgressEvent(text))
