"""Starts ``tapeline inspect``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["inspect", *sys.argv[1:]]))
