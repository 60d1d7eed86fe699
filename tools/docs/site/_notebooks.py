"""Notebooks as pages: text, code, and what it printed or showed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = "notebooks"


def notebook_pages(root: Path) -> dict[str, str]:
    """Returns the Markdown of all notebooks, by their path in the site."""
    files = sorted((root / "docs" / FOLDER).glob("*.ipynb"))
    return {
        f"{FOLDER}/{file.stem}.md": notebook_page(json.loads(file.read_text(encoding="utf-8")), file.name)
        for file in files
    }


def notebook_page(notebook: Any, name: str) -> str:
    """Returns the Markdown of a notebook, which ends with a link to the file."""
    parts = [part for cell in notebook["cells"] for part in _cell(cell)]
    return "\n\n".join([*parts, f"As a notebook: [{name}]({name})."])


def _cell(cell: Any) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```python\n{text}\n```"
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield f"```text\n{''.join(output['text']).rstrip()}\n```"
        elif picture := output["data"].get("image/png"):
            yield f'<img alt="Output" src="data:image/png;base64,{"".join(picture.split())}">'
