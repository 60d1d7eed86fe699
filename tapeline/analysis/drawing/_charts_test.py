"""Charts: the same figures give the same bytes, other figures give others."""

from pathlib import Path

from tapeline.analysis.drawing import (
    Bar,
    Candidate,
    write_candidate_bars,
    write_loss_curve,
    write_losses,
    write_measured_bars,
)

_BARS = [Bar("ours", 3.0, 2.0, 5.0), Bar("theirs", 4.0, 4.0, 4.0, peer=True)]


def test_the_same_losses_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        write_loss_curve([3.0, 2.0, 1.5, 1.0], tmp_path / name, "a training")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "a training" in text


def test_the_same_figures_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        write_measured_bars([("Decode", "tokens/s", _BARS), ("Nothing", "tokens/s", [])], tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert all(word in text for word in ("Decode: tokens/s", "ours", "theirs", "#bdbdbd"))
    write_measured_bars([("Decode", "tokens/s", [Bar("ours", 3.0, 2.0, 6.0), _BARS[1]])], tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_text() != text


def test_candidates_show_the_chosen_one_and_why_others_were_not_timed(tmp_path: Path) -> None:
    candidates = [
        Candidate("one", 2e-6, chosen=True),
        Candidate("two", 3e-6),
        Candidate("three", None, note="it failed"),
    ]
    for name in ("a.svg", "b.svg"):
        write_candidate_bars([("linear", candidates)], tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert all(word in text for word in ("linear", "one", "two", "three", "it failed", "#08519c", "#9ecae1"))


def test_the_same_losses_of_encodings_give_the_same_picture(tmp_path: Path) -> None:
    layers = [{"layer": layer, "weights": 64, "bytes": 36, "loss": loss} for layer, loss in ((0, 0.2), (None, 0.1))]
    frontier = [[4.0, 0.4], [4.5, 0.3], [8.5, 0.0]]
    figures = {"bits_per_weight": 4.5, "predicted_loss": 0.3, "loss": 0.28, "layers": layers, "frontier": frontier}
    for name in ("a.svg", "b.svg"):
        write_losses(figures, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert all(word in text for word in ("loss of each layer", "choice, measured", "bits per weight (dots)", "other"))
    write_losses({**figures, "loss": 0.1}, tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_text() != text
