"""``python -m tapeline``: the ``tapeline`` command."""

import sys

from tapeline.command import main

if __name__ == "__main__":
    sys.exit(main())
