"""Starts ``tapeline answer``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["answer", *sys.argv[1:]])
