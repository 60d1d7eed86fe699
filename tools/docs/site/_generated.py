"""Pages, and parts of pages, that scripts write for the site."""

from pathlib import Path

from tools.docs.site._api import api_index, api_pages


def generated_pages(root: Path) -> dict[str, str]:
    """Returns the files that no file of the repository stands for: path in the site, and text."""
    return api_pages(root)


def additions(place: str, text: str, root: Path) -> str:
    """Returns the text of a page with what scripts add to it."""
    if place == "api/README.md":
        return f"{text}\n{api_index(root)}\n"
    return text
