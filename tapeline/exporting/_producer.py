"""Versions of the packages that made a bundle."""

import importlib.metadata
import platform

from lang_core import has_extra, plugin_versions
from tapeline.cli import VERSION


def producer() -> dict[str, str]:
    """Returns the versions of the packages that made a bundle, with those of plugins."""
    packages = ("numpy", "ml_dtypes", "iree-base-compiler", "iree-base-runtime")
    packages += ("jaxlib",) if has_extra("jax") else ()  # StableHLO's tools, which write the portable artifact
    versions = {name: version for name in packages if (version := _version(name)) is not None}
    plugins = {f"plugin {name}": package for name, package in plugin_versions().items()}
    return {"tapeline": VERSION, "python": platform.python_version(), **versions, **plugins}


def _version(package: str) -> str | None:
    """Returns a package's version; None if it is not installed, as the compiler if target=none is exported."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
