"""Not measured: writes a model of pictures with random weights."""

import json
from pathlib import Path
from typing import Any

from lang_core import f32
from tools.benching.jobs._measure import serve
from transformer_core.models import write_random_model


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Writes ``directory``.

    Args:
        arguments: ``directory``; ``config``: fields of its config.json.
    """
    directory = Path(arguments["directory"])
    config = directory.parent / "picture_config.json"
    config.write_text(json.dumps(arguments["config"]))
    write_random_model(directory, config, f32)
    return {}


if __name__ == "__main__":
    serve(run)
