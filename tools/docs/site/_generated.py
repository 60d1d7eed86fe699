"""Pages, and parts of pages, that scripts write for the site."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tools.docs.site._api import api_index, api_pages
from tools.docs.site._commands import commands_reference
from tools.docs.site._lives import with_pictures
from tools.docs.site._notebooks import notebook_pages

_ADDITIONS: Final[dict[str, Callable[[str, Path], str]]] = {
    "api/README.md": lambda text, root: f"{text}\n{api_index(root)}\n",
    "architecture.md": lambda text, root: with_pictures(text),
    "commands.md": lambda text, root: f"{text}\n{commands_reference()}\n",
}


def generated_pages(root: Path) -> dict[str, str]:
    """Returns the files that no file of the repository stands for: path in the site, and text."""
    return api_pages(root) | notebook_pages(root)


def additions(place: str, text: str, root: Path) -> str:
    """Returns the text of a page with what scripts add to it."""
    return _ADDITIONS.get(place, lambda same, root: same)(text, root)
