"""The debug module: the same functions with traces of tagged tensors, beside the module itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compile_dag import TagInfo
from compile_hlo.directions import Direction
from compile_hlo.emit import KernelSite, SiteTensor
from lang_core import DescriptionError
from tapeline.bundle._field_values import spec_of
from tapeline.bundle._files import DEBUG_MODULE, debug_executable_name
from tapeline.bundle._kernels import KernelRecord


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
        spec = spec_of({"shape": self.shape, "dtype": self.dtype})
        return TagInfo(self.name, spec, self.module_path, self.op, self.line)


@dataclass(frozen=True, slots=True)
class SiteTensorConfig:
    """Tensor of a call of a kernel; see ``SiteTensor``."""

    name: str
    direction: Direction
    dtype: str
    shape: list[int]
    source: int | str
    selected: bool

    @property
    def tensor(self) -> SiteTensor:
        """The same for a dump."""
        spec = spec_of({"shape": self.shape, "dtype": self.dtype})
        return SiteTensor(self.name, self.direction, spec, self.source, self.selected)


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """Call of a kernel; see ``KernelSite``."""

    name: str
    kernel: str
    call_site: int
    module_path: str
    line: str
    in_region: bool
    before: list[SiteTensorConfig]
    after: list[SiteTensorConfig]

    @property
    def site(self) -> KernelSite:
        """The same for a dump."""
        before, after = (tuple(config.tensor for config in part) for part in (self.before, self.after))
        return KernelSite(
            self.name, self.kernel, self.call_site, self.module_path, self.line, self.in_region, before, after
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "SiteConfig":
        """Reads the fields that ``asdict`` returned."""
        parts = {part: [SiteTensorConfig(**row) for row in fields[part]] for part in ("before", "after")}
        return cls(**{**fields, **parts})


@dataclass(frozen=True, slots=True)
class DebugConfig:
    """Description of the debug module in kernel_config.json.

    Attributes:
        tags: globs that selected the tags and the tensors of kernels.
        module: file of its text.
        targets: file of the compiled module, by target.
        entry_points: tags by entry point.
        kernels: calls of kernels with a tensor that is selected, by entry point; empty if there are none.
    """

    tags: list[str]
    module: str
    targets: dict[str, str]
    entry_points: dict[str, list[TagConfig]]
    kernels: dict[str, list[SiteConfig]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DebugConfig":
        """Reads the fields that ``asdict`` returned; damaged ones raise TypeError, KeyError or TapelineError."""
        rows = {name: [TagConfig(**tag) for tag in tags] for name, tags in fields["entry_points"].items()}
        _ = [tag.info for tags in rows.values() for tag in tags]
        sites = {
            name: [SiteConfig.from_json(site) for site in sites] for name, sites in fields.get("kernels", {}).items()
        }
        _ = [site.site for configs in sites.values() for site in configs]
        return cls(list(fields["tags"]), fields["module"], dict(fields["targets"]), rows, sites)

    def check_kernels(self, kernels: Sequence[KernelRecord]) -> None:
        """Refuses calls of a kernel that is not described, or has another signature.

        Raises:
            DescriptionError: there is such a call.
        """
        signatures = {kernel.name: kernel.signature for kernel in kernels}
        for entry_point, sites in self.kernels.items():
            for config in sites:
                site = config.site
                described = signatures.get(site.kernel, [])
                if described is not None and described != site.signature:
                    raise DescriptionError(
                        f"debug: {entry_point}: call {site.name!r} has the directions {site.signature}, its kernel "
                        f"{site.kernel!r} {described or 'is not described'}"
                    )


def debug_config(
    globs: Sequence[str],
    targets: Sequence[str],
    tags: Mapping[str, Sequence[TagInfo]],
    sites: Mapping[str, Sequence[KernelSite]],
) -> DebugConfig:
    """Describes a debug module.

    Args:
        globs: globs that selected the tags and the tensors of kernels.
        targets: targets that it is compiled for.
        tags: tags by entry point.
        sites: calls of kernels by entry point.
    """
    rows = {
        name: [
            TagConfig(tag.name, tag.spec.dtype.name, list(tag.spec.shape), tag.module_path, tag.op, tag.line)
            for tag in infos
        ]
        for name, infos in tags.items()
    }
    calls = {name: [_site_config(site) for site in calls] for name, calls in sites.items()}
    files = {target: debug_executable_name(target) for target in targets}
    return DebugConfig(list(globs), DEBUG_MODULE, files, rows, calls)


def _site_config(site: KernelSite) -> SiteConfig:
    before, after = ([_tensor_config(tensor) for tensor in part] for part in (site.before, site.after))
    return SiteConfig(
        site.name, site.kernel, site.call_site, site.module_path, site.line, site.in_region, before, after
    )


def _tensor_config(tensor: SiteTensor) -> SiteTensorConfig:
    spec = tensor.spec
    return SiteTensorConfig(
        tensor.name, tensor.direction, spec.dtype.name, list(spec.shape), tensor.source, tensor.selected
    )
