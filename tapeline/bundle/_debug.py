"""The debug module: the same functions with traces of tagged tensors, beside the module itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compile_dag import TagInfo
from lang_core import TensorSpec
from tapeline.bundle._files import DEBUG_MODULE, debug_executable_name


@dataclass(frozen=True, slots=True)
class TagConfig:
    """Tagged tensor of an entry point; see ``TagInfo``."""

    name: str
    dtype: str
    shape: list[int]
    module_path: str
    op: str
    line: str

    @property
    def info(self) -> TagInfo:
        """The same for a dump."""
        return TagInfo(self.name, TensorSpec(tuple(self.shape), self.dtype), self.module_path, self.op, self.line)


@dataclass(frozen=True, slots=True)
class DebugConfig:
    """Description of the debug module in kernel_config.json.

    Attributes:
        tags: globs that selected the tags.
        module: file of its text.
        targets: file of the compiled module, by target.
        entry_points: tags by entry point.
    """

    tags: list[str]
    module: str
    targets: dict[str, str]
    entry_points: dict[str, list[TagConfig]]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DebugConfig":
        """Reads the fields that ``asdict`` returned; damaged ones raise TypeError, KeyError or TapelineError."""
        rows = {name: [TagConfig(**tag) for tag in tags] for name, tags in fields["entry_points"].items()}
        _ = [tag.info for tags in rows.values() for tag in tags]
        return cls(list(fields["tags"]), fields["module"], dict(fields["targets"]), rows)


def debug_config(globs: Sequence[str], targets: Sequence[str], tags: Mapping[str, Sequence[TagInfo]]) -> DebugConfig:
    """Describes a debug module.

    Args:
        globs: globs that selected the tags.
        targets: targets that it is compiled for.
        tags: tags by entry point.
    """
    rows = {
        name: [
            TagConfig(tag.name, tag.spec.dtype.name, list(tag.spec.shape), tag.module_path, tag.op, tag.line)
            for tag in infos
        ]
        for name, infos in tags.items()
    }
    return DebugConfig(list(globs), DEBUG_MODULE, {target: debug_executable_name(target) for target in targets}, rows)
