"""Folder of the user's caches."""

import os
from pathlib import Path


def user_cache_directory() -> Path:
    """Returns ``$XDG_CACHE_HOME/tapeline``, by default ``~/.cache/tapeline``; creates nothing.

    A relative ``XDG_CACHE_HOME`` is ignored, as the XDG specification asks.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home if home and Path(home).is_absolute() else Path.home() / ".cache", "tapeline")
