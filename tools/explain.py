"""Starts ``tapeline explain``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["explain", *sys.argv[1:]]))
