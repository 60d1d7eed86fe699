"""Starts ``tapeline doctor``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["doctor", *sys.argv[1:]]))
