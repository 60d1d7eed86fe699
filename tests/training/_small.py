"""A model that trains within seconds, and data."""

import json
from pathlib import Path
from typing import Any, Final

from tapeline.demo import write_demo_checkpoint

OPTIONS: Final[dict[str, Any]] = {"steps": 6, "batch": 4, "sequence": 16, "save_every": 2, "learning_rate": 5e-3}
_TEXT: Final = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. "
)


def write_small(directory: Path) -> None:
    """Writes ``model``, the demo model's first layer, and ``data.txt`` into a directory."""
    write_demo_checkpoint(directory / "model")
    path = directory / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 1}))
    (directory / "data.txt").write_text(_TEXT * 8)
