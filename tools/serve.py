"""Starts ``tapeline serve``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["serve", *sys.argv[1:]])
