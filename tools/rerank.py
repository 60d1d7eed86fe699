"""Starts ``tapeline rerank``."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main(["rerank", *sys.argv[1:]]))
