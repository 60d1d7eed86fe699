"""Parameter archives (.irpa): written from a checkpoint in bounded memory, mapped by IREE without a copy.

>>> from lang_core import TensorSpec
>>> archive_layout([ArchiveEntry("w", "model.w", TensorSpec((2, 3), "f32"))]).total_bytes
8192
"""

from compile_hlo.archive._journal import Journal, partial_name
from compile_hlo.archive._layout import ArchiveEntry, ArchiveLayout, archive_layout
from compile_hlo.archive._pieces import Pieces
from compile_hlo.archive._reader import ArchiveRecord, read_archive_index
from compile_hlo.archive._values import NonFinite
from compile_hlo.archive._weights import ArchiveWeights
from compile_hlo.archive._writer import WrittenArchive, write_archive

__all__ = [
    "ArchiveEntry",
    "ArchiveLayout",
    "ArchiveRecord",
    "ArchiveWeights",
    "Journal",
    "NonFinite",
    "Pieces",
    "WrittenArchive",
    "archive_layout",
    "partial_name",
    "read_archive_index",
    "write_archive",
]
