"""Rows of caches are copied and cleared in place, on every device."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from run_iree import Session
from run_iree._device_testing import compiled, device_params
from transformer_core.models import DecoderLM, entry_points
from transformer_core.models._tiny_testing import HYBRID

_ROWS = 4
_POINTS = [
    point
    for point in entry_points(DecoderLM(HYBRID, num_layers=2), slots=_ROWS, sequence=2, max_sequence=5)
    if point.name in ("copy_row", "clear_row")
]
_CACHES = {argument.name: argument.spec for argument in _POINTS[0].arguments if argument.alias_result}
_PAIRS = st.permutations(range(_ROWS)).map(lambda rows: (rows[0], rows[1]))
_STEPS = st.lists(_PAIRS | st.tuples(st.integers(0, _ROWS - 1), st.none()), min_size=1, max_size=12)
_EXAMPLES = 200 if os.environ.get("TAPELINE_LONG") else 12


@pytest.fixture(scope="module", params=device_params())
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    pieces: list[str] = []
    lowered = lower_module(_POINTS, pieces.append, ExternalParameters())
    module: Path = compiled("".join(pieces), request.param, tmp_path_factory.mktemp("rows"))
    with Session(module, request.param, signatures=[function.signature for function in lowered.functions]) as opened:
        yield opened


@settings(
    deadline=None,
    derandomize=True,
    max_examples=_EXAMPLES,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(_STEPS)
def test_rows_are_what_they_would_be_in_memory(session: Session, steps: list[tuple[int, int | None]]) -> None:
    """A step is a copy from a row to another one, or without that clears the row's states."""
    random = np.random.default_rng(len(steps))
    expected = {name: random.standard_normal(spec.shape).astype(spec.dtype.numpy) for name, spec in _CACHES.items()}
    tensors = [session.upload(array) for array in expected.values()]
    places = [tensor.address() for tensor in tensors]
    held = session.hold(tensors)
    copy, clear = session.updating("copy_row", 0), session.updating("clear_row", 0)
    for row, target in steps:
        if target is None:
            clear(held, row)
        else:
            copy(held, row, target)
        for name, array in expected.items():
            if target is not None:
                array[target] = array[row]
            elif name.endswith("_state"):
                array[row] = 0
    for index, array in enumerate(expected.values()):
        np.testing.assert_array_equal(held.numpy(index), array)
    assert [tensor.address() for tensor in held.lend()] == places
    assert session.counters.bytes_guarded == 0
