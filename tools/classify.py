"""Starts ``tapeline classify``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["classify", *sys.argv[1:]])
