"""Jobs of processes that are killed."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any, Final

import tapeline
from run_iree import ModuleCache
from tapeline.bundle import note_matching
from tapeline.command import main

SIZES: Final[dict[str, Any]] = {"sequence": 8, "max_sequence": 32, "num_layers": 1, "target": (), "verify": "none"}
"""Options of an export that takes little time."""


def sizes(positions: int) -> dict[str, Any]:
    """Returns the same options with another number of positions."""
    return {**SIZES, "max_sequence": positions}


def export_for_ever(output: Path) -> None:
    """Exports again and again, with other sizes each time."""
    for number in itertools.count():
        tapeline.export("demo", output, **sizes(32 + number % 3), overwrite=True)


def serve_for_ever(folder: Path, address: Path) -> None:
    """Serves the demo model, which is exported into a cache first; writes the server's address to a file."""
    os.environ["XDG_CACHE_HOME"] = str(folder)
    with address.open("w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
    main(["serve", "--model=demo", "--port=0", "--slots=2"])


def cache_for_ever(folder: Path) -> None:
    """Fills and empties the caches again and again."""
    os.environ["XDG_CACHE_HOME"] = str(folder)
    module = folder / f"module-{os.getpid()}"
    module.write_bytes(os.urandom(50_000))
    cache = ModuleCache(folder / "tapeline" / "modules", 220_000)
    for number in itertools.count():
        cache.store(f"{number % 7}", module, {"number": number % 7})
        cache.fetch(f"{(number * 3) % 7}", module.with_suffix(".copy"))
        note_matching(module, module.stat(), f"{number % 7}")
