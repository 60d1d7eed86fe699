"""Starts ``tapeline doctor``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["doctor", *sys.argv[1:]])
