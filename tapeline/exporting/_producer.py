"""What makes bundles."""

import importlib.metadata
import platform
from typing import Final

VERSION: Final = "0.1.0"


def producer() -> dict[str, str]:
    """The versions of what made a bundle."""
    packages = ("numpy", "ml_dtypes", "iree-base-compiler", "iree-base-runtime", "jaxlib")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"tapeline": VERSION, "python": platform.python_version(), **found}
