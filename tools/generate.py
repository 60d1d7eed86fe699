"""Starts ``tapeline generate``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["generate", *sys.argv[1:]])
