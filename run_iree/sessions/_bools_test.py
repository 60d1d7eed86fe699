"""Bools whose bytes are not 0 or 1 are True at every door of a session, and results have bytes of 0 and 1."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, TensorSpec
from run_iree._device_testing import compiled, device_params
from run_iree.sessions import Session

_MASK = TensorSpec((5,), "bool")
_BYTES = np.array([0, 1, 2, 254, 255], np.uint8)


def _points() -> list[EntryPoint]:
    def main(ctx: Any, m: Any) -> dict[str, Any]:
        ops = ctx.ops
        return {"number": ops.cast(m, "i32"), "same": ops.equal(m, ops.constant(np.ones(5, bool))), "back": m}

    def kept(ctx: Any, m: Any, held: Any) -> dict[str, Any]:
        return {"number": ctx.ops.cast(held, "i32"), "held": ctx.ops.logical_or(held, m)}

    donated = Argument("held", _MASK, alias_result="held")
    return [
        EntryPoint("main", main, (Argument("m", _MASK),)),
        EntryPoint("kept", kept, (Argument("m", _MASK), donated)),
    ]


@pytest.mark.parametrize("device", device_params(shared=True))
def test_bools_of_other_bytes_are_true_at_every_door(device: str, tmp_path: Path) -> None:
    lines: list[str] = []
    lowered = lower_module(_points(), lines.append, ExternalParameters())
    mask = _BYTES.view(bool)
    with Session(
        compiled("".join(lines), device, tmp_path), device, signatures=[f.signature for f in lowered.functions]
    ) as session:
        function = session.function("main")
        for given in (mask, session.upload(mask), mask[::-1][::-1]):
            number, same, back = (tensor.numpy() for tensor in function(given))
            assert number.tolist() == [0, 1, 1, 1, 1]
            assert same.view(np.uint8).tolist() == back.view(np.uint8).tolist() == [0, 1, 1, 1, 1]
        number, held = session.function("kept")(mask, session.upload(mask))
        assert number.numpy().tolist() == [0, 1, 1, 1, 1]
        assert held.numpy().view(np.uint8).tolist() == [0, 1, 1, 1, 1]
        quick = session.host_function("main")
        for _ in range(3):  # the first call is a general one
            number, same, back = quick(mask)
            assert number.tolist() == same.view(np.uint8).tolist() == back.view(np.uint8).tolist() == [0, 1, 1, 1, 1]
