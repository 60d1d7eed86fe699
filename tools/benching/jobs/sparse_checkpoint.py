"""Not measured: writes a checkpoint of a configuration whose weights are a hole in a file."""

import json
from pathlib import Path
from typing import Any

from tools.benching.jobs._measure import serve
from transformer_core import CONFIG_FILE
from transformer_core.checkpoints import SafetensorsCheckpoint, write_safetensors, write_sparse_safetensors
from transformer_core.models import DecoderConfig, DecoderLM, stored_specs


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Writes ``directory``.

    Args:
        arguments: ``directory``, ``config`` (as config.json), ``dtype``.
    """
    directory = Path(arguments["directory"])
    directory.mkdir()
    file = directory / "model.safetensors"
    write_safetensors(file, {}, lambda key, spec: ())
    with SafetensorsCheckpoint(directory) as nothing:
        specs = stored_specs(DecoderLM(DecoderConfig.from_hf(arguments["config"]), arguments["dtype"]), nothing)
    size = write_sparse_safetensors(file, specs)
    (directory / CONFIG_FILE).write_text(json.dumps(arguments["config"]))
    return {"bytes": size, "tensors": len(specs)}


if __name__ == "__main__":
    serve(run)
