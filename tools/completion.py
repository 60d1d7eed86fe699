"""Starts ``tapeline completion``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["completion", *sys.argv[1:]])
