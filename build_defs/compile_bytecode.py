"""Compiles Python modules: its argument is @FILE, with a source and the .pyc to write on every two lines.

The .pyc are not compared with their sources when they are loaded: who makes them anew is Bazel. Where a source does
not compile (a template, another Python's) its .pyc is empty, and Python says what is wrong when it is imported.
"""

import py_compile
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> None:
    """Compiles what the file in argv names."""
    names = Path(argv[0].removeprefix("@")).read_text().splitlines()
    for source, output in zip(names[::2], names[1::2], strict=True):
        try:
            py_compile.compile(
                source, output, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
            )
        except py_compile.PyCompileError:
            Path(output).touch()


if __name__ == "__main__":
    main(sys.argv[1:])
