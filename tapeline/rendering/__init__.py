"""Chat templates in separate processes: the programs that run there, with limits of memory and time.

Templates come with models, from anywhere. This folder imports jinja2 and the standard library alone, so that its
processes are small and start fast; ``tapeline.text`` talks to them.
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.rendering._frames import FrameError, receive, send
    from tapeline.rendering._limits import RenderLimits
    from tapeline.rendering._server import serve_workers
    from tapeline.rendering._worker import ERROR, TEXT

export_lazily(__name__)
