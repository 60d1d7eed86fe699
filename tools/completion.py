"""Starts ``tapeline completion``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["completion", *sys.argv[1:]]))
