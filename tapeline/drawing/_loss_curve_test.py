from pathlib import Path

from tapeline.drawing import write_loss_curve


def test_the_same_losses_give_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        write_loss_curve([3.0, 2.0, 1.5, 1.0], tmp_path / name, "a training")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "a training" in text
