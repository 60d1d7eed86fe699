"""Not measured: writes a checkpoint with random weights for the others."""

from typing import Any

from lang_core import as_dtype
from tools.benching.jobs._measure import serve
from transformer_core.checkpoints import LlamaSizes, write_random_llama


def run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Writes ``directory``.

    Args:
        arguments: ``directory``, ``sizes`` (as LlamaSizes), ``dtype``.
    """
    write_random_llama(arguments["directory"], LlamaSizes(*arguments["sizes"]), as_dtype(arguments["dtype"]))
    return {}


if __name__ == "__main__":
    serve(run)
