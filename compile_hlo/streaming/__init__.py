"""Streaming lowering: memory that does not grow with the model (docs/design/0001-streaming.md).

A model is recorded once. Each stretch between block boundaries is taken apart when it ends: the common part of equal
stretches is a template, which is verified, planned, merged and printed once; its own part goes to disk. A backward
sweep over the stretches finds the live values, and a forward sweep writes the text of the whole graph, byte for byte.
"""

from compile_hlo.streaming._plan import PlannedStretch, StreamingPlan
from compile_hlo.streaming._record import LargestStretch, RecordedFunction
from compile_hlo.streaming._write import StretchWriter
