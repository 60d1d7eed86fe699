"""Starts ``tapeline run``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
