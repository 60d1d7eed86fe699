"""``--dump_tags``: the debug module beside the module."""

from collections.abc import Sequence

from compile_hlo import LoweredModule, lower_module
from compile_hlo.emit import Form, Write
from lang_core import EntryPoint, InputError, TagSelection


def dump_tags(text: str) -> tuple[str, ...]:
    """The globs of ``--dump_tags``; none where the flag was not given.

    Raises:
        InputError: a glob is empty or given twice.
    """
    if not text:
        return ()
    globs = tuple(part.strip() for part in text.split(","))
    if not all(globs) or len(set(globs)) != len(globs):
        raise InputError(f"--dump_tags={text}: a comma list of names or globs is wanted, each once, such as '*.output'")
    return globs


def lower_debug(entry_points: Sequence[EntryPoint], write: Write, form: Form, globs: Sequence[str]) -> LoweredModule:
    """Writes the debug module's text: flat, without block functions, so that every tensor has its layer's name.

    Raises:
        InputError: a glob matches no tag.
    """
    return lower_module(entry_points, write, form, streaming=True, block_functions=False, tags=TagSelection(globs))
