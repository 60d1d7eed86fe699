"""Text, progress, paths and exit codes that programs share."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.cli._events import Progress, ProgressEvent, no_progress
    from tapeline.cli._main import (
        EXIT_INPUT,
        EXIT_OTHER,
        check_writable,
        guarded,
        open_streams,
        output_file,
        run,
        user_path,
        whole_file,
    )
    from tapeline.cli._progress import ByteProgress, StepProgress, TerminalProgress
    from tapeline.cli._say import say, say_error, saying, show
    from tapeline.cli._size import parse_size, size_text
    from tapeline.cli._table import table
    from tapeline.cli._version import VERSION

export_lazily(__name__)
