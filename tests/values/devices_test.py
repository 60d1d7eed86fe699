"""Ops at special values, on devices of IREE: results are the truth's, or a row of the differences.

Compiling takes the time: without TAPELINE_LONG=1 in the environment a part of the probes runs.
"""

import os
import re
from pathlib import Path
from typing import Final

import pytest

from run_iree._device_testing import compiled, device_params
from tests.values._differences import disagreements
from tests.values._engines import module_of, on_device
from tests.values._grid import Probe, probes, wrong

_LONG: Final = bool(os.environ.get("TAPELINE_LONG"))
# What these devices cannot compile is in LIMITS of tests/emission/_device_cases.py.
_REFUSED: Final = {
    "local-task": r"(sin|cos|rem|rem_by_numbers)_f64",
    "vmvx": r".*_f16|.*_f64|cast_(f16|f64)_.*|pow_of_numbers_bf16",  # the last is a constant of 16 bits
}
# Values at which these were wrong, or are.
_TOUCHY: Final = re.compile(
    r"(pow|mul_by_numbers|div_of_numbers|rem_by_numbers|add_by_numbers|gelu|sin|cos|prod|round|.*_subnormal)(_.*)?"
)
_SHARE: Final = 6
# Probes of other devices have no rows: the table is made on CPUs.
_DEVICES: Final = ("local-task", "vmvx")


def _sample(device: str, dtype: str) -> list[Probe]:
    refused = re.compile(_REFUSED[device])
    every = [probe for probe in probes(dtype) if not refused.fullmatch(probe.entry)]
    if _LONG:
        return every
    if dtype != "f32":
        return every[:: 4 * _SHARE]
    return [probe for number, probe in enumerate(every) if number % _SHARE == 0 or _TOUCHY.fullmatch(probe.name)]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64", "i32", "i64", "i8", "u8"])
@pytest.mark.parametrize("device", device_params(shared=True))
def test_special_values(device: str, dtype: str, tmp_path: Path) -> None:
    if device not in _DEVICES:
        pytest.skip(f"docs/status.md states the differences of {', '.join(_DEVICES)}")
    every = _sample(device, dtype)
    if not every:
        pytest.skip(f"{device} computes nothing in {dtype}: see docs/status.md")
    results = on_device(device, every, compiled(module_of(every), device, tmp_path))
    lines = disagreements(device, every, [wrong(probe, r) for probe, r in zip(every, results, strict=True)])
    assert not lines, "\n".join(lines)
