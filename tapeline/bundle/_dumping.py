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
    """Begins a dump of what a bundle does; open the session with the dumper.

    Args:
        bundle: what is run.
        directory: of the dump: new, or empty.
        device: where it runs, for the manifest.
        level: 1 tags alone; 2 tags and every argument and result; 3 figures of all, elements of tags alone.
        limits: of payloads.

    Raises:
        InputError: the level is unknown, or needs a debug module that the bundle does not have; or the directory cannot
            be written, or holds something.
    """
    debug = bundle.config.debug
    if level not in LEVELS:
        raise InputError(f"--dump_level={level}: there are 0 (off), {', '.join(map(str, LEVELS))}")
    if debug is None and level != _NEEDS_NO_TAGS:
        raise InputError(
            f"--dump_level={level} shows tagged tensors, and {bundle.path} has no debug module: export with "
            f"--dump_tags='*' (or the names that you want), or take --dump_level=2, which here shows arguments and "
            f"results alone"
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
    order = {name: [each.name for each in found] for name, found in tags.items()}
    with DumpWriter(directory, level=level, source=source, tags=globs, order=order, limits=limits) as writer:
        yield Dumper(writer, {name: [each.info for each in found] for name, found in tags.items()})
