"""Starts ``tapeline compare``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
