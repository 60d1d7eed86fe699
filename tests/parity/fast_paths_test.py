"""Eager fast paths beside the ops that a recording gets: one contract.

A composite that computes eagerly by another way than by its ops takes the same dtypes and ranks, refuses the rest with
the same errors, gives the same bits, and is as silent about overflow as ops are.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import transformer_core
from compile_dag import evaluate, record
from lang_core import DTYPES, EagerExecutionContext, OpError, TapelineError, TensorSpec, as_dtype
from transformer_core import RopeConfig, RopeMode, apply_rope, rope

_CTX: Final = EagerExecutionContext()
_SPECIAL: Final = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 6e4, -7.5)
Case = tuple[Callable[..., Any], list[np.ndarray[Any, Any]]]


@st.composite
def arrays(draw: Any, shape: tuple[int, ...], dtype: Any = None) -> np.ndarray[Any, Any]:
    """Draws an array of any dtype of the table, as a rule a floating one, with infinities, NaN and subnormals."""
    floating = [value for value in DTYPES if value.is_floating]
    kind = dtype or draw(st.sampled_from([*floating, *floating, *DTYPES]))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    values = np.asarray(random.standard_normal(shape)) * draw(st.sampled_from([1.0, 1e3, 1e-39]))
    if values.size and draw(st.booleans()):
        values.flat[random.integers(values.size)] = draw(st.sampled_from(_SPECIAL))
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(kind.numpy))


@st.composite
def rope_cases(draw: Any) -> Case:
    """Draws x, and cos and sin that fit it or nearly so."""
    rotated = draw(st.sampled_from([2, 4, 6, 3]))
    rank = draw(st.sampled_from([2, 3, 4, 1, 0]))
    shape = tuple(draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank)))
    size = rotated + draw(st.sampled_from([0, 0, 3, -1]))
    x = draw(arrays((*shape[:-1], size) if rank else ()))
    lead = x.shape[draw(st.integers(0, rank)) : -1]
    leading = [draw(st.sampled_from([count, count, 1])) for count in lead]
    cos = draw(arrays((*leading, rotated)))
    sin = draw(arrays(cos.shape, draw(st.sampled_from([as_dtype(cos.dtype)] * 3 + [None]))))
    mode = draw(st.sampled_from(RopeMode))
    return lambda ctx, x, cos, sin: apply_rope(ctx, x, cos, sin, mode), [x, cos, sin]


@st.composite
def whole_rope_cases(draw: Any) -> Case:
    """Draws x for ``rope``, whose tables are made from a config."""
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank)))
    config = RopeConfig(rotated=draw(st.sampled_from([2, 4])), mode=draw(st.sampled_from(RopeMode)))
    return lambda ctx, x: rope(ctx, x, config), [draw(arrays(shape))]


# Cases of every composite that has a fast path, by the file that holds it.
FAST_PATHS: Final[Mapping[str, tuple[st.SearchStrategy[Case], ...]]] = {
    "layers/_rope.py": (rope_cases(), whole_rope_cases()),
}
# Files that ask whether ops are recorded for another reason.
OTHERS: Final = {"flow/_value.py": "converts a caller's arrays, or refuses them in a recording"}


def outcome(compute: Callable[[], np.ndarray[Any, Any]]) -> Any:
    """Returns dtype, shape and bits of a result (all NaN alike), or the type and text of the error."""
    try:
        with np.errstate(all="raise"), warnings.catch_warnings():
            warnings.simplefilter("error")
            result = compute()
    except TapelineError as error:
        return type(error), str(error)
    nan = np.isnan(result.astype(np.float64)) if as_dtype(result.dtype).is_floating else np.zeros(result.shape, bool)
    return result.dtype, result.shape, nan.tolist(), np.where(nan, np.ones((), result.dtype), result).tobytes()


@pytest.mark.parametrize("file", FAST_PATHS)
def test_the_fast_path_and_the_recorded_ops_have_one_contract(file: str) -> None:
    accepted = [0, 0]

    @settings(max_examples=20_000 if os.environ.get("TAPELINE_LONG") else 300, deadline=None)
    @given(st.one_of(*FAST_PATHS[file]))
    def check(case: Case) -> None:
        function, tensors = case
        specs = [TensorSpec(x.shape, as_dtype(x.dtype)) for x in tensors]

        def by_ops() -> np.ndarray[Any, Any]:
            graph = record(function, *specs, input_names=[f"x{i}" for i in range(len(specs))], name="f")
            inputs = {f"x{i}": _CTX.constant(x) for i, x in enumerate(tensors)}
            return evaluate(graph, _CTX, inputs)["result"].numpy()

        eager = outcome(lambda: function(_CTX, *[_CTX.constant(x) for x in tensors]).numpy())
        assert eager == outcome(lambda: function(_CTX, *tensors).numpy()) == outcome(by_ops)
        accepted[eager[0] is OpError] += 1

    check()
    assert min(accepted) > 20  # both what is accepted and what is refused was drawn


def test_every_file_that_asks_for_a_recording_is_known() -> None:
    folder = Path(transformer_core.__file__ or "").parent
    asking = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if ".isRecording" in path.read_text(encoding="utf-8").replace("``ctx.isRecording``", "")
        and not path.name.endswith("_test.py")
    }
    assert asking == {*FAST_PATHS, *OTHERS}, "a composite with a fast path has its cases in FAST_PATHS"
