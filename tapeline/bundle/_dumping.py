"""Dumps of a bundle's calls on a device."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lang_core import InputError
from run_iree import target_of_device
from runtime.dump import LEVELS, Dumper, DumpLimits, DumpWriter
from tapeline.bundle._bundle import Bundle
from tapeline.bundle._files import MODULE, debug_executable_name, executable_name

_NEEDS_NO_TAGS: Final = 2


@contextmanager
def dumping(
    bundle: Bundle,
    directory: Path,
    *,
    device: str,
    level: int,
    limits: DumpLimits | None = None,
    module: str | None = None,
) -> Iterator[Dumper]:
    """Yields a dumper, with which the caller opens a session of the bundle.

    Args:
        bundle: bundle that is run.
        directory: new or empty directory of the dump.
        device: name of the device, for the manifest.
        level: 1 for tags only; 2 for tags, and arguments and results of calls and of the kernels in them; 3 for
            statistics of all and elements of tags.
        limits: limits of payloads.
        module: file that runs, for the manifest; None for IREE's compiled module for the device.

    Raises:
        DescriptionError: a kernel's call in the debug module does not have the kernel's signature.
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
    source: dict[str, Any] = {
        "context": "device",
        "device": device,
        "bundle": bundle.path.name,
        "model": bundle.config.model.get("name"),
        "module_sha256": bundle.config.sha256.get(MODULE),
    }
    globs = None if debug is None else debug.tags
    tags = {} if debug is None else debug.entry_points
    calls = {} if debug is None else debug.kernels
    source["module"] = module or _executable(device, is_debug=debug is not None)
    source["second_module"] = debug is not None
    if debug is not None:
        debug.check_kernels(bundle.config.kernels)
    order = {name: [tag.name for tag in infos] for name, infos in tags.items()}
    with DumpWriter(directory, level=level, source=source, tags=globs, order=order, limits=limits) as writer:
        yield Dumper(
            writer,
            {name: [tag.info for tag in infos] for name, infos in tags.items()},
            {name: [config.site for config in configs] for name, configs in calls.items()},
        )


def _executable(device: str, *, is_debug: bool) -> str:
    target = target_of_device(device)
    return debug_executable_name(target) if is_debug else executable_name(target)
