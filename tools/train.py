"""Starts ``tapeline train``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
