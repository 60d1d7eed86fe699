"""Starts ``tapeline fill``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["fill", *sys.argv[1:]])
