"""Starts ``tapeline serve``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
