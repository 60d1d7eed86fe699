from pathlib import Path

from tapeline.drawing import Bar, write_measured_bars

_BARS = [Bar("ours", 3.0, 2.0, 5.0), Bar("theirs", 4.0, 4.0, 4.0, peer=True)]


def test_the_same_figures_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        write_measured_bars([("Decode", "tokens/s", _BARS), ("Nothing", "tokens/s", [])], tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert all(word in text for word in ("Decode: tokens/s", "ours", "theirs", "#bdbdbd"))
    write_measured_bars([("Decode", "tokens/s", [Bar("ours", 3.0, 2.0, 6.0), _BARS[1]])], tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_text() != text
