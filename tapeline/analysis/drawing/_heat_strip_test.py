"""Pictures of comparisons."""

from pathlib import Path

import numpy as np
import pytest

from lang_core import InputError
from runtime.dump import TensorLabel
from tapeline.analysis.drawing import check_picture, write_picture
from tapeline.compare import ComparedTensor, Comparison, compare_tensors


def _tensor(name: str, error: float) -> ComparedTensor:
    label = TensorLabel(step=0, entry_point="decode", name=name, direction="TAG", when="during")
    return compare_tensors(label, np.array([1, 1 + error], np.float32), np.ones(2, np.float32), 1e-4)


def _comparison(error: float) -> Comparison:
    tensors = _tensor("layers.0.q", 0.0), _tensor("layers.1.q", error), _tensor("logits", error)
    return Comparison("bundle", "the eager context", 1e-4, tensors)


def test_a_picture_names_calls_blocks_and_the_first_divergence(tmp_path: Path) -> None:
    write_picture(_comparison(0.5), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    for word in (
        "decode, step 0",
        "layers.0",
        "layers.1",
        "(no block)",
        "first divergence",
        "1 tensors agree, 2 differ",
    ):
        assert word in text
    write_picture(_comparison(0.0), tmp_path / "b.svg")
    assert "first divergence" not in (tmp_path / "b.svg").read_text()


def test_formats_and_folders_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    check_picture(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"unknown format of a picture '\.doc'; available: \.png, \.svg, \.pdf"):
        check_picture(tmp_path / "a.doc")
    with pytest.raises(InputError, match=r"a\.svg: the picture cannot be written: No such file"):
        write_picture(_comparison(0.5), tmp_path / "missing" / "a.svg")
