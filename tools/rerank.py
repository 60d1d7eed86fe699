"""Starts ``tapeline rerank``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["rerank", *sys.argv[1:]])
