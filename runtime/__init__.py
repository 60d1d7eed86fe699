"""Sessions of every backend: the ``Session`` protocol and its base, with handles, held tensors, checks and totals."""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from runtime._checks import ArgumentChecks, Value, admitted, admitted_value, number_as_tensor
    from runtime._counters import Counters
    from runtime._guard import CallGuard
    from runtime._handle import DeviceHandle, Owner
    from runtime._holding import HELD, Holding, Part
    from runtime._protocol import Function, Held, Results, Session, Tensor, Updating
    from runtime._replacing import BaseUpdating, UpdatePlan
    from runtime._session import BaseSession

export_lazily(__name__)
