"""Starts ``tapeline cache``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["cache", *sys.argv[1:]])
