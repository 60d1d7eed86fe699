"""Starts ``tapeline explain``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["explain", *sys.argv[1:]])
