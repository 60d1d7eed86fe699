"""Starts ``tapeline tag``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["tag", *sys.argv[1:]])
