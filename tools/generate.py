"""Starts ``tapeline generate``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["generate", *sys.argv[1:]]))
