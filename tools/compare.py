"""Starts ``tapeline compare``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["compare", *sys.argv[1:]])
