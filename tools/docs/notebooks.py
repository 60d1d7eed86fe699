"""Runs the notebooks of docs/ anew and writes them with their outputs: ``bazel run //tools/docs:notebooks``."""

import os
import sys
from pathlib import Path
from typing import Any, Final

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

_KERNEL: Final = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
_SECONDS: Final = 600


class _Kernel(AsyncKernelManager):
    """Kernel of this very interpreter, whatever kernels are installed."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        return [part.format(connection_file=self.connection_file) for part in _KERNEL]


def executed(path: Path) -> Any:
    """Returns a notebook with the outputs of a run, without anything of this machine."""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, kernel_manager_class=_Kernel, timeout=_SECONDS)
    client.execute(cwd=str(path.parent))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def text_outputs(notebook: Any) -> list[str]:
    """Returns what each cell of code printed or returned as text."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(map(_text, cell.outputs)) for cell in cells]


def _text(output: Any) -> str:
    return output.text if output.get("name") == "stdout" else ""


def main() -> None:
    """Runs all notebooks, or those that are named."""
    root = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")).resolve()
    for path in [Path(name) for name in sys.argv[1:]] or sorted((root / "docs" / "notebooks").glob("*.ipynb")):
        nbformat.write(executed(path), path)
        print(path)


if __name__ == "__main__":
    main()
