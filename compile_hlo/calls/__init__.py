"""Calls of lowered functions, as every engine's session takes them: checks of values, running totals."""

from compile_hlo.calls._checks import ArgumentChecks, Handle, Value, number_as_tensor
from compile_hlo.calls._counters import Counters

__all__ = ["ArgumentChecks", "Counters", "Handle", "Value", "number_as_tensor"]
