"""Compiled modules that processes of tests share."""

import os
from pathlib import Path


def shared_modules(cache: Path) -> dict[str, str]:
    """Makes the modules in a cache folder those of all tests, if `bazel test` keeps modules.

    Args:
        cache: value of ``XDG_CACHE_HOME`` for a process that a test starts.

    Returns:
        Variables of the environment that the process needs.
    """
    folder = os.environ.get("TAPELINE_TEST_MODULES")
    if not folder:
        return {}
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    link = cache / "tapeline" / "modules"
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(folder, target_is_directory=True)
    return {"TAPELINE_MODULE_CACHE": "256MiB"}
