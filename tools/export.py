"""Starts ``tapeline export``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]]))
