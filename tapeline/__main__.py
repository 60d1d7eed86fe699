"""``python -m tapeline``: the ``tapeline`` command."""

import sys

# python -m puts the working directory first, which may hold a pickle.py of somebody else.
if __name__ == "__main__" and not sys.flags.safe_path and not __file__.startswith(sys.path[0] + "/"):
    sys.path.pop(0)

from tapeline.program import main

if __name__ == "__main__":
    main()
