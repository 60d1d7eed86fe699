import pytest

from lang_core import InputError
from tools.benching.suites._stats import Summary


def test_median_and_spread() -> None:
    summary = Summary.of([4.0, 1.0, 3.0, 2.0])
    assert summary == Summary(2.5, 1.0, 4.0, 4)


def test_no_measurements_are_refused() -> None:
    with pytest.raises(InputError, match="a summary of no measurements was asked for: measure at least one round"):
        Summary.of([])


def test_keys_are_scaled() -> None:
    assert Summary.of_key([{"bytes": 2048}, {"bytes": 4096}], "bytes", 1024) == Summary(3.0, 2.0, 4.0, 2)


def test_pairs_are_of_the_same_round() -> None:
    ours, theirs = [{"s": 1.0}, {"s": 4.0}], [{"s": 2.0}, {"s": 8.0}]
    assert Summary.of_pairs(theirs, ours, lambda other, mine: other["s"] / mine["s"]) == Summary(2.0, 2.0, 2.0, 2)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.0], "0"),
        ([0.01234], "0.012"),
        ([1.234, 12.34, 1234.5], "12.3 [1.23-1,234]"),
        ([0.0101, 0.0102], "0.010"),
        ([-2.0, 1.0], "-0.500 [-2.00-1.00]"),
    ],
)
def test_text(values: list[float], text: str) -> None:
    assert str(Summary.of(values)) == text
