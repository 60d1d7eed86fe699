"""Pictures of figures and comparisons, with Matplotlib: a room of its own, because the import is slow and large."""

from tapeline.drawing._candidate_bars import Candidate, write_candidate_bars
from tapeline.drawing._heat_strip import check_picture, write_picture
from tapeline.drawing._loss_curve import write_loss_curve
from tapeline.drawing._measured_bars import Bar, write_measured_bars

__all__ = [
    "Bar",
    "Candidate",
    "check_picture",
    "write_candidate_bars",
    "write_loss_curve",
    "write_measured_bars",
    "write_picture",
]
