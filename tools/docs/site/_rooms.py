"""Public names of every room, read from the sources without importing them."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.layering._measures import public_names

PACKAGES: Final = (
    "tapeline",
    "autotune",
    "run_iree",
    "run_jax",
    "generation",
    "transformer_core",
    "runtime",
    "compile_hlo",
    "compile_dag",
    "lang_core",
)


class Room(NamedTuple):
    """A folder with public names.

    Attributes:
        name: dotted, as it is imported.
        summary: first line of its docstring.
        names: public ones, sorted, and the module that each is imported from; the room where it defines one itself.
    """

    name: str
    summary: str
    names: dict[str, str]


def rooms(root: Path) -> list[Room]:
    """Returns the rooms of all packages, package by package; those of tests, and without public names, are left out."""
    files = (file for package in PACKAGES for file in sorted((root / package).rglob("__init__.py")))
    files = (file for file in files if file.parent.name != "testing")
    return [room for file in files if (room := _room(root, file)).names]


def owner_of(name: str, room: Room, all_rooms: dict[str, Room]) -> Room:
    """Returns the room that documents a name: the one whose files define it, or the first on the way there."""
    module = room.names[name]
    holder = next((parent for parent in _parents(module) if parent in all_rooms), room.name)
    if holder == room.name or name not in all_rooms[holder].names:
        return room
    return owner_of(name, all_rooms[holder], all_rooms)


def _parents(module: str) -> Iterator[str]:
    while module:
        yield module
        module = module.rpartition(".")[0]


def _room(root: Path, file: Path) -> Room:
    name = ".".join(file.parent.relative_to(root).parts)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    origins = {alias.asname or alias.name: node.module or name for node in _imports(tree) for alias in node.names}
    summary = (ast.get_docstring(tree) or "").partition("\n")[0]
    return Room(name, summary, {public: origins.get(public, name) for public in public_names(tree)})


def _imports(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))


@functools.cache
def room_of_root(root: Path) -> dict[str, Room]:
    """Returns the rooms by name."""
    return {room.name: room for room in rooms(root)}
