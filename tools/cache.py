"""Starts ``tapeline cache``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["cache", *sys.argv[1:]]))
