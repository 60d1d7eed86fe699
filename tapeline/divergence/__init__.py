"""Two sides run on the same inputs, compared result by result, and inside of the first call that departs.

A side is a bundle on a device, or its model in the eager context. If results differ, the entry point is lowered once
more with tensors from inside as further results, until the first op that differs is found: block, op, module path and
Python line.
"""

from typing import TYPE_CHECKING

from lang_core import export_lazily

if TYPE_CHECKING:
    from tapeline.divergence._example_calls import Arrays, example_inputs, expected_result, next_state
    from tapeline.divergence._locate import locate
    from tapeline.divergence._references import EagerReference, Reference, RunnerReference
    from tapeline.divergence._runners import DeviceRunner, InterpreterRunner, Runner, XlaRunner
    from tapeline.divergence._runs import INSIDE, compare_runs
    from tapeline.divergence._sides import DeviceSide, EagerSide, LoweredSide, Side, check_alike, eager_side

export_lazily(__name__)
