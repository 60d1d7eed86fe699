"""Files of inputs, in the working directory of the child."""

from pathlib import Path


def written(name: str, data: bytes) -> Path:
    """Writes a new file of that name and returns its path; the former file may be mapped still.

    A rename over the former file would make ext4 write the new one to the disk, which takes milliseconds.
    """
    path = Path.cwd() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path
