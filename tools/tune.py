"""Starts ``tapeline tune``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["tune", *sys.argv[1:]]))
