"""Starts ``tapeline families``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["families", *sys.argv[1:]])
