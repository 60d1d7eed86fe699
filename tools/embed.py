"""Starts ``tapeline embed``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["embed", *sys.argv[1:]]))
