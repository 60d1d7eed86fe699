"""Starts ``tapeline launch``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["launch", *sys.argv[1:]])
