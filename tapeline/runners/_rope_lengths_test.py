import pytest

from tapeline.runners._rope_lengths import RopeLengths

_LONGROPE = {"type": "longrope", "short_factors": [1.0], "long_factors": [2.0], "original_length": 16}


def test_longrope_changes_beyond_the_original_length():
    lengths = RopeLengths({"rope": {"scaling": _LONGROPE}, "local_rope": None})
    lengths.begin(16)
    assert [lengths.outgrown(length) for length in (16, 17, 40)] == [False, True, True]
    lengths.begin(17)
    assert [lengths.outgrown(length) for length in (17, 18)] == [False, False]
    assert lengths.length == 17
    assert [lengths.regime_of(length) for length in (1, 16, 17, 40)] == [0, 0, 1, 1]


def test_dynamic_keys_stay_and_are_those_of_one_length():
    lengths = RopeLengths({"rope": {"scaling": {"type": "dynamic", "trained": 16}}})
    lengths.begin(10)
    assert not lengths.outgrown(17)
    assert [lengths.regime_of(length) for length in (1, 16, 17, 18)] == [0, 0, 17, 18]


@pytest.mark.parametrize("scaling", [None, {}, {"type": "yarn"}, {**_LONGROPE, "long_factors": [1.0]}])
def test_other_frequencies_never_change(scaling):
    lengths = RopeLengths({"rope": None if scaling is None else {"scaling": scaling}})
    assert not lengths.outgrown(1000)
    assert {lengths.regime_of(length) for length in (1, 16, 17, 1000)} == {0}
