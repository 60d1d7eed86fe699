"""Starts ``tapeline run``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
