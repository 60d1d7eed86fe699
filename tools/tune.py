"""Starts ``tapeline tune``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["tune", *sys.argv[1:]])
