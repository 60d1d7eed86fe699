"""Packages that extend this one: each names a module that registers its extensions when it is imported."""

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from lang_core._errors import PluginError

PLUGINS: Final = "tapeline.plugins"
"""Group of Python entry points under which a package names its module."""


@functools.cache
def load_plugins() -> tuple[str, ...]:
    """Imports the modules of all installed plugins, once per process, and returns the plugins' names.

    A package becomes a plugin by its metadata (in pyproject.toml)::

        [project.entry-points."tapeline.plugins"]
        acme = "acme_models"

    Registries call this before they look a name up, so nobody else has to.

    Raises:
        PluginError: a module cannot be imported; names the package and the cause.
    """
    points = sorted(entry_points(group=PLUGINS), key=lambda point: point.name)
    for point in points:
        _load(point)
    return tuple(point.name for point in points)


def plugin_versions() -> dict[str, str]:
    """Returns the package and the version of each plugin, by the plugin's name; imports nothing."""
    return {point.name: _package(point) for point in sorted(entry_points(group=PLUGINS), key=lambda point: point.name)}


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown package"


def _load(point: EntryPoint) -> None:
    try:
        point.load()
    except Exception as error:
        raise PluginError(
            f"plugin {point.name!r} of {_package(point)}: importing {point.value} failed with "
            f"{type(error).__name__}: {error}; mend the package, or uninstall it"
        ) from error
