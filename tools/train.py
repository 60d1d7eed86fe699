"""Starts ``tapeline train``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
