"""Version of the product."""

from typing import Final

VERSION: Final = "0.1.0"
"""Version of the package, as three numbers with dots."""
