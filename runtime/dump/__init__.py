"""Tensor dumps: arguments, results and tagged intermediates of calls, from any context. docs/dump.md has the schema.

>>> import tempfile
>>> from pathlib import Path
>>> import numpy as np
>>> from runtime.dump import DumpWriter, TensorLabel, read_dump
>>> directory = Path(tempfile.mkdtemp()) / "dump"
>>> label = TensorLabel(step=0, entry_point="main", name="x", direction="IN", when="before")
>>> with DumpWriter(directory, level=2, source={"context": "eager"}) as writer:
...     _ = writer.add(label, np.array([1, 2, 4], np.float32), payload=True)
>>> dump = read_dump(directory)
>>> dump.records[0].max, dump.load(dump.records[0]).tolist()
(4.0, [1.0, 2.0, 4.0])
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from runtime.dump._agreement import Companion, ModuleAgreement
    from runtime.dump._dumper import LEVELS, CallDumper, DumpedCall, Dumper
    from runtime.dump._eager import eager_call, kernel_sites, tags_by_entry_point
    from runtime.dump._reader import Dump, read_dump
    from runtime.dump._record import DumpRecord, TensorLabel
    from runtime.dump._statistics import Statistics, statistics
    from runtime.dump._traced import add_traced, traced_specs
    from runtime.dump._writer import MANIFEST, DumpLimits, DumpTotals, DumpWriter

export_lazily(__name__)
