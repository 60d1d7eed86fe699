"""Pictures with matplotlib: apart from the rest, for it takes a second and 60 MB to import."""

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
