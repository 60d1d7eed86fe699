"""What the command-line tools share."""

from tools.cli._main import run, user_path
from tools.cli._progress import ByteProgress, say

__all__ = ["ByteProgress", "run", "say", "user_path"]
