"""The text that is given to the compiler in place of a module's: with kernels, and with functions for blocks."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from run_iree.compiler._outline import BlockOutline, outline
from run_iree.compiler._targets import Target
from run_iree.kernels import Substitution


@contextlib.contextmanager
def with_kernels(source: Path, target: Target) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yields the text to compile, with the target's kernels in a temporary file of the same name, and the kernels."""
    if target.kernels is None:
        yield source, {}
        return
    with tempfile.TemporaryDirectory(prefix="tapeline-kernels-") as folder:
        text, substitution = Path(folder, source.name), Substitution(target.kernels)
        with source.open() as original, text.open("w") as substituted:
            substituted.writelines(substitution.lines(original))
        yield (text if substitution.used else source), substitution.used


@contextlib.contextmanager
def outlined_text(text: Path, target: Target, flags: Sequence[str]) -> Iterator[tuple[Path, BlockOutline] | None]:
    """Yields a temporary file of the same name in which block functions stay functions, if some can."""
    rule = target.outline_beside(flags)
    functions = None
    if rule is not None:
        with text.open() as lines:
            functions = outline(lines, rule)
    if functions is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="tapeline-outlined-") as folder:
        result = Path(folder, text.name)
        with text.open() as lines, result.open("w") as written:
            written.writelines(functions.lines(lines))
        yield result, functions
