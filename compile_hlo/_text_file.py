"""Files of text that are there only when they are complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def text_file(path: Path) -> Iterator[TextIO]:
    """Opens a file to write a module into. It gets its name when the block ends; if the block raises, it goes.

    A file of that name stays as it is until then.
    """
    beside = path.with_name(f"{path.name}.part")
    try:
        with beside.open("w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
