"""Functions take turns, equally often."""

from tools.benching.jobs._turns import in_turns


def test_all_are_called_equally_often_in_orders_that_change() -> None:
    said: list[str] = []
    samples = in_turns({name: lambda name=name: said.append(name) for name in "abc"}, repeats=9, sample_s=0.0)
    assert {name: len(times) for name, times in samples.items()} == {"a": 9, "b": 9, "c": 9}
    assert all(seconds >= 0 for times in samples.values() for seconds in times)
    assert said[:9] == list("abc") * 3, "calls that do not count"
    turns = ["".join(said[start : start + 3]) for start in range(9, len(said), 3)]
    assert len(turns) == 9
    assert all(sorted(turn) == list("abc") for turn in turns)
    assert len(set(turns)) > 2
    assert all(second == first[::-1] for first, second in zip(turns[::2], turns[1::2], strict=False))
