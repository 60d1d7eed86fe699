"""Names and hashes of a bundle's files."""

import hashlib
from pathlib import Path
from typing import Final

from lang_core import open_regular

# A directory that holds this file is a bundle.
MARK: Final = "kernel_config.json"
"""Name of the file that makes a directory a bundle."""
REPORT: Final = "report.json"
"""Name of the export's report."""
LOSSES: Final = "losses.svg"
"""Name of the picture of measured losses."""
MODULE: Final = "module.mlir"
"""Name of the StableHLO text."""
DEBUG_MODULE: Final = "module.debug.mlir"
"""Name of the debug module's text, with traces for dumps."""
ARTIFACT: Final = "module.vhlo"
"""Name of the portable artifact."""
PER_DEVICE: Final = "module.per-device.mlir"
"""Name of the program of one device of a mesh."""
ARCHIVE: Final = "weights.irpa"
"""Name of the parameter archive."""
SCOPE: Final = "model"
"""Name of the archive in the module."""


def executable_name(target: str) -> str:
    """Returns the file name of a target's compiled module."""
    return f"module.{target}.vmfb"


def debug_executable_name(target: str) -> str:
    """Returns the file name of a target's compiled debug module."""
    return f"module.debug.{target}.vmfb"


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal."""
    with open(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
