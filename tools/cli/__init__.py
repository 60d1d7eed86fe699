"""What the command-line tools share."""

from tools.cli._main import output_file, run, user_path
from tools.cli._progress import ByteProgress, say
from tools.cli._size import parse_size, size_text
from tools.cli._table import table

__all__ = ["ByteProgress", "output_file", "parse_size", "run", "say", "size_text", "table", "user_path"]
