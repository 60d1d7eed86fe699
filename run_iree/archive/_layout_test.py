import pytest

from lang_core import InputError, TensorSpec
from run_iree.archive._layout import DATA_ALIGNMENT, PAGE, ArchiveEntry, archive_layout


def entry(name: str, key: str, *shape: int, dtype: str = "f32") -> ArchiveEntry:
    return ArchiveEntry(name, key, TensorSpec(shape, dtype))


def test_data_is_aligned_and_in_order() -> None:
    layout = archive_layout([entry("a", "a", 3), entry("b", "b", 5, 7), entry("c", "c"), entry("d", "d", 0)])
    offsets = [storage.offset for storage in layout.storages]
    assert offsets == [PAGE, PAGE + 64, PAGE + 256, PAGE + 320]
    assert all(offset % DATA_ALIGNMENT == 0 for offset in offsets)
    assert len(layout.head) == PAGE
    assert layout.total_bytes == 2 * PAGE


def test_tied_parameters_share_their_data() -> None:
    layout = archive_layout([entry("embed", "w", 8), entry("head", "w", 8), entry("head_bf16", "w", 8, dtype="bf16")])
    assert [storage.names for storage in layout.storages] == [("embed", "head"), ("head_bf16",)]


def test_empty_archive() -> None:
    assert archive_layout([]).total_bytes == PAGE


def test_long_names_move_the_data() -> None:
    layout = archive_layout([entry("n" * 5000, "a", 3)])
    assert layout.storages[0].offset == 2 * PAGE


def test_names_are_checked() -> None:
    with pytest.raises(InputError, match="parameter 'b' appears twice among the entries of the archive"):
        archive_layout([entry("a", "a", 3), entry("b", "b", 3), entry("b", "c", 3)])
    with pytest.raises(InputError, match="the entry of key 'k' has an empty name"):
        archive_layout([entry("", "k", 3)])
    with pytest.raises(InputError, match="not valid Unicode"):
        archive_layout([entry("\ud800", "k", 3)])
