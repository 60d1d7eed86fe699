"""Debug module beside the module."""

from collections.abc import Sequence

from compile_hlo import LoweredModule, lower_module
from compile_hlo.emit import Form, Write
from lang_core import EntryPoint, TagSelection


def lower_debug(entry_points: Sequence[EntryPoint], write: Write, form: Form, globs: Sequence[str]) -> LoweredModule:
    """Writes the debug module's text: flat, without block functions, so that every tensor has its layer's name.

    Raises:
        InputError: a glob matches no tag.
    """
    return lower_module(entry_points, write, form, streaming=True, block_functions=False, tags=TagSelection(globs))
