"""Pictures with matplotlib: apart from the rest, for it takes a second and 60 MB to import."""

from tools.drawing._heat_strip import check_picture, write_picture
from tools.drawing._loss_curve import write_loss_curve

__all__ = ["check_picture", "write_loss_curve", "write_picture"]
