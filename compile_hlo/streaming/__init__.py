"""Streaming lowering: memory that does not grow with the model (docs/design/0001-streaming.md).

A model is recorded twice. Pass 1 (``PlanningSink``) finds out what is needed of each stretch between block boundaries;
pass 2 (``EmittingSink``) prunes, merges and writes each stretch when it ends, and forgets it. The text is that of the
whole graph, byte for byte.
"""

from compile_hlo.streaming._emit import EmittingSink
from compile_hlo.streaming._plan import Plan
from compile_hlo.streaming._planning import PlanningSink

__all__ = ["EmittingSink", "Plan", "PlanningSink"]
