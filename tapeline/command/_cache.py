"""Lists and clears the caches.

cache list                          sizes and paths
cache clear                         clears all caches except the hub's, which other programs share
cache clear --name=modules          clears one cache
"""

from collections.abc import Sequence
from typing import Final

from absl import flags

from lang_core import InputError
from tapeline.cli import say, show, size_text, table
from tapeline.command._cache_folders import CacheFolder, cache_folders, clear_caches
from tapeline.command._format_flags import FormatFlag, put_json

FLAGS: Final = flags.FlagValues()

_ACTIONS: Final = ("list", "clear")
POSITIONAL: Final = ("action", _ACTIONS)

_ACTION: Final = flags.DEFINE_enum("action", "list", list(_ACTIONS), "Action: list or clear.", flag_values=FLAGS)
_NAME: Final = flags.DEFINE_multi_string(
    "name", [], "Folder to clear: bundles, modules, kernels or trusted.", flag_values=FLAGS
)
_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the folders, or empties them and prints the rest."""
    if _ACTION.value == "clear":
        cleared = clear_caches(_NAME.value)
        left = {folder.name: folder.nbytes for folder in cache_folders()}
        for folder in cleared:
            say(f"{folder.name}: {size_text(folder.nbytes - left[folder.name])} removed from {folder.path}")
    elif _NAME.value:
        raise InputError("`name` selects caches for `action=clear`: leave it out to list all")
    _put(cache_folders())


def _put(folders: Sequence[CacheFolder]) -> None:
    if _FORMAT.is_json:
        put_json(folders)
        return
    rows = [(f.name, size_text(f.nbytes), f"{f.entries} entries", str(f.path), f.holds) for f in folders]
    show("\n".join(table(rows, indent="")) + "\n")
