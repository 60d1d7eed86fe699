"""Starts ``tapeline make-checkpoint``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["make-checkpoint", *sys.argv[1:]]))
