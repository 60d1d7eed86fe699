"""Pictures of figures and comparisons, with Matplotlib: a room of its own, because the import is slow and large."""

from tapeline.drawing._charts import Bar, Candidate, write_candidate_bars, write_loss_curve, write_measured_bars
from tapeline.drawing._heat_strip import check_picture, write_picture

__all__ = [
    "Bar",
    "Candidate",
    "check_picture",
    "write_candidate_bars",
    "write_loss_curve",
    "write_measured_bars",
    "write_picture",
]
