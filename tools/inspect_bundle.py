"""Starts ``tapeline inspect``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["inspect", *sys.argv[1:]])
