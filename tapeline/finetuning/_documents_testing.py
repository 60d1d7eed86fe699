"""Reader of training data, for tests of other packages."""

from tapeline.finetuning._documents import Documents

__all__ = ["Documents"]
