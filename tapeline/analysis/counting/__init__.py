"""Counting: flops, bytes and collectives of an entry point on one device of a mesh, from its recording.

Each op is a set of loops (factors); a mesh cuts some of them, and the resulting exchanges between devices are counted.
Counting does not depend on the model family, and nothing is compiled (docs/planning.md).
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.analysis.counting._count import CountedWork, TensorAxes, count_work
    from tapeline.analysis.counting._work import Collective, Work

export_lazily(__name__)
