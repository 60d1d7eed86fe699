"""Starts ``tapeline launch``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["launch", *sys.argv[1:]]))
