"""Starts ``tapeline transcribe``."""

import sys

from tapeline.program import main

if __name__ == "__main__":
    main(["transcribe", *sys.argv[1:]])
