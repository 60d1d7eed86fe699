"""Words for the person at the terminal."""

import sys


def say(text: str) -> None:
    """One line for the person who waits."""
    print(text, file=sys.stderr, flush=True)
