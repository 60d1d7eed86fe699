"""Starts ``tapeline transcribe``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["transcribe", *sys.argv[1:]]))
