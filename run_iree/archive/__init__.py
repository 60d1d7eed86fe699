"""Parameter archives (.irpa): written from a checkpoint in bounded memory, mapped by IREE without a copy.

>>> from lang_core import TensorSpec
>>> from run_iree.archive import ArchiveEntry, archive_layout
>>> archive_layout([ArchiveEntry("w", "model.w", TensorSpec((2, 3), "f32"))]).total_bytes
8192
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from run_iree.archive._journal import ArchiveJournal, partial_name
    from run_iree.archive._layout import ArchiveEntry, ArchiveLayout, archive_layout
    from run_iree.archive._pieces import Pieces
    from run_iree.archive._reader import ArchiveRecord, read_archive_index
    from run_iree.archive._values import NonFinite
    from run_iree.archive._weights import ArchiveWeights
    from run_iree.archive._writer import WrittenArchive, write_archive

export_lazily(__name__)
