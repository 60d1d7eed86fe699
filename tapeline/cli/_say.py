"""Lines on stderr."""

import sys


def say(text: str) -> None:
    """Prints one line on stderr."""
    print(text, file=sys.stderr, flush=True)
