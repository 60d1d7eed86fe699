from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run_iree.archive import _output
from run_iree.archive._output import UNIT_BYTES, Units

_UNIT = 11


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_output, "UNIT_BYTES", _UNIT)
        yield


def _given_back(units: Units, pieces: list[bytes]) -> list[bytes]:
    """Each is copied at once: it is good until the next is asked for."""
    return [bytes(unit) for piece in pieces for unit in units.add(piece)]


@given(st.integers(0, 40), st.lists(st.binary(max_size=35), max_size=12))
def test_bytes_stay_in_order_and_units_end_at_multiples(offset: int, pieces: list[bytes]) -> None:
    units = Units(offset)
    whole = _given_back(units, pieces)
    rest = bytes(units.rest())
    assert b"".join([*whole, rest]) == b"".join(pieces)
    assert len(rest) < _UNIT
    assert all(whole)
    end = offset
    for unit in whole:
        end += len(unit)
        assert end % _UNIT == 0
    assert not units.rest()


def test_whole_units_of_a_piece_are_not_copied() -> None:
    piece = bytes(range(3 * _UNIT + 5))
    (unit,) = Units(2 * _UNIT).add(piece)
    assert (unit.obj is piece, len(unit)) == (True, 3 * _UNIT)
    (unit,) = Units(_UNIT - 4).add(piece)
    assert (unit.obj is piece, len(unit)) == (True, 4 + 3 * _UNIT)
    units = Units(0)
    assert not list(units.add(b"head"))
    complete = units.add(piece)
    assert bytes(next(complete)) == b"head" + piece[: _UNIT - 4]
    (unit,) = complete
    assert (unit.obj is piece, bytes(unit)) == (True, piece[_UNIT - 4 : 3 * _UNIT - 4])
    assert bytes(units.rest()) == piece[3 * _UNIT - 4 :]


def test_what_was_not_taken_in_time_is_not_held() -> None:
    """A write that fails: nothing of what follows it may come later."""
    units = Units(0)
    list(units.add(b"head"))
    next(units.add(bytes(100)))
    assert not units.rest()


def test_a_unit_is_a_large_page() -> None:
    assert UNIT_BYTES == 2 << 20
