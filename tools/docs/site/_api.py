"""Pages of the API reference: one per room, filled by mkdocstrings from docstrings."""

from collections.abc import Iterator
from pathlib import Path

from tools.docs.site._docstrings import without_file_links
from tools.docs.site._rooms import PACKAGES, Room, owner_of, room_of_root


def api_pages(root: Path) -> dict[str, str]:
    """Returns the Markdown of the pages, by their path in the site."""
    rooms = room_of_root(root)
    return {f"api/{room.name}.md": "\n".join(_page(room, rooms)) for room in rooms.values()}


def api_index(root: Path) -> str:
    """Returns the table of all rooms, package by package."""
    rooms = room_of_root(root)
    return "\n".join(line for package in PACKAGES for line in _package(package, rooms))


def _package(package: str, rooms: dict[str, Room]) -> Iterator[str]:
    yield f"\n## {package}\n\n| room | holds | names |\n|---|---|---|"
    for room in rooms.values():
        if room.name.split(".")[0] == package:
            yield f"| [`{room.name}`]({room.name}.md) | {_cell(without_file_links(room.summary))} | {len(room.names)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _page(room: Room, rooms: dict[str, Room]) -> Iterator[str]:
    owners = {name: owner_of(name, room, rooms) for name in room.names}
    yield f"# {room.name}\n"
    yield from _directive(room.name, members=False, show_root_heading=False, show_root_toc_entry=False)
    if others := {name: holder for name, holder in owners.items() if holder is not room}:
        yield "Also here, from other rooms:\n"
        yield "\n".join(f"- [`{name}`][{holder.name}.{name}]" for name, holder in others.items())
        yield ""
    for name in sorted((name for name, holder in owners.items() if holder is room), key=_order):
        yield from _directive(f"{room.name}.{name}")


def _order(name: str) -> tuple[bool, str]:
    """Sorts functions and classes without regard to case, and constants behind them."""
    return name.isupper(), name.lower()


def _directive(name: str, **options: bool) -> Iterator[str]:
    yield f"::: {name}"
    if options:
        yield "    options:"
        yield from (f"      {key}: {str(value).lower()}" for key, value in options.items())
    yield ""
