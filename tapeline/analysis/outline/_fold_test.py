"""Folding loses nothing: what was folded, unfolded, is the sequence."""

from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tapeline.analysis.outline._fold import MAX_PERIOD, Folder
from tapeline.analysis.outline._outline import Box, Item, Repeat, boxes_of


def _unfolded(items: Sequence[Item]) -> Iterator[str]:
    for item in items:
        if isinstance(item, Repeat):
            assert item.count > 1
            for _ in range(item.count):
                yield from _unfolded(item.items)
        else:
            (name,) = item.operations
            yield name


def _folded(sequence: str) -> Folder:
    folder = Folder()
    for i, name in enumerate(sequence):
        folder.append(Box(i, f"layers.{i}", None, {name: 1}), {(i - 1, name): None} if i else {})
    return folder


_SEQUENCES = st.lists(st.tuples(st.text("abc", min_size=1, max_size=4), st.integers(1, 5)), max_size=6).map(
    lambda parts: "".join(part * count for part, count in parts)
)


@settings(max_examples=300, deadline=None)
@given(_SEQUENCES, st.integers(1, 3))
def test_unfolded_it_is_the_sequence(sequence: str, times: int) -> None:
    sequence *= times
    folder = _folded(sequence)
    assert "".join(_unfolded(folder.items)) == sequence
    kept = {box.id: box for box in boxes_of(folder.items)}
    for i, name in enumerate(sequence):
        box = kept[folder.id(i)]
        assert list(box.operations) == [name]
        if i:
            assert (folder.id(i - 1), name) in folder.uses(box)


def test_repetitions_take_no_room() -> None:
    for pattern in ("a", "ab", "aaaaab", "".join(chr(ord("a") + i) for i in range(26))):
        folder = _folded(pattern * 500)
        assert sum(1 for _ in boxes_of(folder.items)) == len(set(pattern))
        (repeat,) = folder.items
        assert isinstance(repeat, Repeat)
        assert repeat.count == 500 * (len(pattern) if pattern == "a" else 1)


def test_longer_patterns_than_the_limit_stay() -> None:
    pattern = "".join(chr(0x4E00 + i) for i in range(MAX_PERIOD + 1))
    assert len(_folded(pattern * 2).items) == 2 * len(pattern)
