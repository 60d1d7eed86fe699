"""Starts ``tapeline make-checkpoint``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["make-checkpoint", *sys.argv[1:]])
