"""Dumps of what a bundle does on a device."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lang_core import InputError
from run_iree.dump import LEVELS, Dumper, DumpLimits, DumpWriter
from tapeline.bundle._bundle import Bundle
from tapeline.bundle._files import MODULE

_NEEDS_NO_TAGS: Final = 2


@contextmanager
def dumping(
    bundle: Bundle, directory: Path, *, device: str, level: int, limits: DumpLimits | None = None
) -> Iterator[Dumper]:
    """Yields a dumper, with which the caller opens a session of the bundle.

    Args:
        bundle: bundle that is run.
        directory: new or empty directory of the dump.
        device: name of the device, for the manifest.
        level: 1 for tags only; 2 for tags, arguments and results; 3 for statistics of all and elements of tags.
        limits: limits of payloads.

    Raises:
        InputError: the level is unknown, or needs a debug module that the bundle does not have; or the directory is not
            empty, or cannot be written.
    """
    debug = bundle.config.debug
    if level not in LEVELS:
        raise InputError(f"dump_level={level}: expected 0 (off), {', '.join(map(str, LEVELS))}")
    if debug is None and level != _NEEDS_NO_TAGS:
        raise InputError(
            f"dump_level={level} dumps tagged tensors, and {bundle.path} has no debug module: export with "
            f"dump_tags='*' (or the names of some), or use dump_level=2, which dumps arguments and results"
        )
    source = {
        "context": "device",
        "device": device,
        "bundle": bundle.path.name,
        "model": bundle.config.model.get("name"),
        "module_sha256": bundle.config.sha256.get(MODULE),
    }
    globs = None if debug is None else debug.tags
    tags = {} if debug is None else debug.entry_points
    order = {name: [tag.name for tag in infos] for name, infos in tags.items()}
    with DumpWriter(directory, level=level, source=source, tags=globs, order=order, limits=limits) as writer:
        yield Dumper(writer, {name: [tag.info for tag in infos] for name, infos in tags.items()})
