"""The debug module: the same functions with traces of tagged tensors, beside the module itself."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from compile_dag import TagInfo
from lang_core import InputError, TensorSpec
from run_iree.dump import LEVELS, Dumper, DumpLimits, DumpWriter

if TYPE_CHECKING:
    from tapeline.bundle._bundle import Bundle

DEBUG_MODULE: Final = "module.debug.mlir"
_NEEDS_NO_TAGS: Final = 2


def debug_executable_name(target: str) -> str:
    """The file of a target's compiled debug module."""
    return f"module.debug.{target}.vmfb"


@dataclass(frozen=True, slots=True)
class TagConfig:
    """A tagged tensor of an entry point; see ``TagInfo``."""

    name: str
    dtype: str
    shape: list[int]
    module_path: str
    op: str
    line: str

    @property
    def info(self) -> TagInfo:
        """The same, as a dump wants it."""
        return TagInfo(self.name, TensorSpec(tuple(self.shape), self.dtype), self.module_path, self.op, self.line)


@dataclass(frozen=True, slots=True)
class DebugConfig:
    """What kernel_config.json says of the debug module.

    Attributes:
        tags: the globs that chose the tags.
        module: the file of its text.
        targets: the file of each target's compiled module.
        entry_points: the tags of each.
    """

    tags: list[str]
    module: str
    targets: dict[str, str]
    entry_points: dict[str, list[TagConfig]]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DebugConfig":
        """Reads what ``asdict`` made; what is damaged raises TypeError, KeyError or TapelineError."""
        rows = {name: [TagConfig(**each) for each in tags] for name, tags in fields["entry_points"].items()}
        _ = [each.info for tags in rows.values() for each in tags]
        return cls(list(fields["tags"]), fields["module"], dict(fields["targets"]), rows)


def debug_config(globs: Sequence[str], targets: Sequence[str], tags: Mapping[str, Sequence[TagInfo]]) -> DebugConfig:
    """Describes a debug module with these tags by entry point."""
    rows = {
        name: [
            TagConfig(tag.name, tag.spec.dtype.name, list(tag.spec.shape), tag.module_path, tag.op, tag.line)
            for tag in found
        ]
        for name, found in tags.items()
    }
    return DebugConfig(list(globs), DEBUG_MODULE, {target: debug_executable_name(target) for target in targets}, rows)


@contextmanager
def dumping(
    bundle: "Bundle", directory: Path, *, device: str, level: int, limits: DumpLimits | None = None
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
        "module_sha256": bundle.config.sha256.get("module.mlir"),
    }
    globs = None if debug is None else debug.tags
    tags = {} if debug is None else debug.entry_points
    order = {name: [each.name for each in found] for name, found in tags.items()}
    with DumpWriter(directory, level=level, source=source, tags=globs, order=order, limits=limits) as writer:
        yield Dumper(writer, {name: [each.info for each in found] for name, found in tags.items()})
