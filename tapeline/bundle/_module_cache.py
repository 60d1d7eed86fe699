"""Cache of compiled modules, which exports fill and bundles that are compiled again use."""

import os
from collections.abc import Callable
from typing import Final

from lang_core import user_cache_directory
from run_iree import ModuleCache
from tapeline.cli import parse_size

MODULE_CACHE: Final = "TAPELINE_MODULE_CACHE"
"""Variable of the environment with the bound of the cache of compiled modules."""

_DEFAULT_BOUND: Final = "1GiB"


def module_cache(warn: Callable[[str], object]) -> ModuleCache | None:
    """Returns the user's cache of compiled modules; None if ``TAPELINE_MODULE_CACHE`` is 0.

    Args:
        warn: receives a line if the cache cannot be written.

    Raises:
        InputError: ``TAPELINE_MODULE_CACHE`` is not a size.
    """
    limit = os.environ.get(MODULE_CACHE, "") or _DEFAULT_BOUND
    if limit == "0":
        return None
    return ModuleCache(user_cache_directory() / "modules", parse_size(MODULE_CACHE, limit), warn)
