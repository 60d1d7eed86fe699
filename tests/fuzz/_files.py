"""Files of inputs, in the working directory of the child."""

import os
from pathlib import Path


def written(name: str, data: bytes) -> Path:
    """Writes a file and returns its path; replaces a file of that name, which may be mapped still."""
    path = Path.cwd() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.new")
    partial.write_bytes(data)
    os.replace(partial, path)
    return path
