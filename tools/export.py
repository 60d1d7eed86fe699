"""Starts ``tapeline export``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
