"""Calls of lowered functions, as every engine's session takes them: handles, held tensors, checks, running totals."""

from compile_hlo.calls._checks import ArgumentChecks, Value, admitted, admitted_value, number_as_tensor
from compile_hlo.calls._counters import Counters
from compile_hlo.calls._guard import CallGuard
from compile_hlo.calls._handle import DeviceHandle, Owner
from compile_hlo.calls._holding import HELD, Holding, Part
from compile_hlo.calls._replacing import BaseUpdating, UpdatePlan
from compile_hlo.calls._session import BaseSession

__all__ = [
    "HELD",
    "ArgumentChecks",
    "BaseSession",
    "BaseUpdating",
    "CallGuard",
    "Counters",
    "DeviceHandle",
    "Holding",
    "Owner",
    "Part",
    "UpdatePlan",
    "Value",
    "admitted",
    "admitted_value",
    "number_as_tensor",
]
