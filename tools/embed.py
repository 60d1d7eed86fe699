"""Starts ``tapeline embed``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["embed", *sys.argv[1:]])
