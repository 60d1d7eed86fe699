import numpy as np
import pytest

from lang_core import EagerExecutionContext, MappingWeights
from transformer_core.layers._logits import next_ids_of

_CTX = EagerExecutionContext(MappingWeights({}))


def _ids(logits: np.ndarray) -> np.ndarray:
    return next_ids_of(_CTX, _CTX.constant(logits)).numpy()


@pytest.mark.parametrize("shape", [(3, 31), (2, 5, 7), (11,)])
def test_ids_are_numpys(shape: tuple[int, ...]) -> None:
    logits = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    actual = _ids(logits)
    assert actual.dtype == np.int32
    np.testing.assert_array_equal(actual, logits.argmax(-1))


def test_of_equal_logits_the_first_counts_and_lost_ones_do_not_matter() -> None:
    logits = np.array([[-3, 5, 2, 5], [-np.inf, -np.inf, -7, -np.inf], [0, -0.0, 0, -1]], np.float32)
    assert _ids(logits).tolist() == [1, 2, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nothing_is_chosen_where_the_largest_is_no_number(bad: float) -> None:
    logits = np.array([[1, bad, 3], [1, 2, 3], [bad, bad, bad]], np.float32)
    assert _ids(logits).tolist() == [-1, 2, -1]
    assert _ids(np.full(4, -np.inf, np.float32)).tolist() == -1
