"""Starts ``tapeline convert``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["convert", *sys.argv[1:]])
