"""Versions of what made a bundle."""

import importlib.metadata
import platform

from tapeline.cli import VERSION


def producer() -> dict[str, str]:
    """Returns the versions of what made a bundle."""
    packages = ("numpy", "ml_dtypes", "iree-base-compiler", "iree-base-runtime", "jaxlib")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {"tapeline": VERSION, "python": platform.python_version(), **versions}
