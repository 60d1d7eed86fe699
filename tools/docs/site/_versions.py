"""Versions of a published site: a folder for each, a list for the selector, and a page that leads to one.

This is the layout of mike, so Material's selector reads it. mike itself commits to a branch of a repository.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

NEXT: Final = "next"
_LIST: Final = "versions.json"
_UNRELEASED: Final = re.compile(r"^## \[Unreleased\]\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
_RELEASED: Final = re.compile(r"^## \[(\d[^\]]*)\]", re.MULTILINE)
_LEAD: Final = (
    '<!doctype html><meta charset="utf-8"><title>Tapeline</title><meta http-equiv="refresh" content="0; url={}/">'
    '<p><a href="{}/">Tapeline</a></p>'
)


def version_of(changelog: str) -> str:
    """Returns the version that a tree documents: the newest release, or ``next`` where something changed since."""
    unreleased = _UNRELEASED.search(changelog)
    newest = _RELEASED.search(changelog)
    return newest[1] if newest and not (unreleased and unreleased[1].strip()) else NEXT


def publish(folder: Path, version: str) -> None:
    """Adds a version to the list of a folder, newest first, and leads its first page to the newest release."""
    file = folder / _LIST
    known = [entry["version"] for entry in json.loads(file.read_text())] if file.exists() else []
    versions = sorted({version, *known}, key=_order, reverse=True)
    newest = next((name for name in versions if name != NEXT), NEXT)
    file.write_text(json.dumps([_entry(name, newest) for name in versions], indent=1))
    (folder / "index.html").write_text(_LEAD.format(newest, newest))


def _order(version: str) -> tuple[bool, list[int]]:
    return version == NEXT, [int(part) for part in re.findall(r"\d+", version)]


def _entry(version: str, newest: str) -> dict[str, Any]:
    return {"version": version, "title": version, "aliases": ["latest"] if version == newest else []}
