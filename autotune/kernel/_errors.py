"""The errors of choosing and tuning."""

from lang_core import TapelineError


class KernelError(TapelineError, RuntimeError):
    """A kernel was declared, called or remembered against its contract."""


class ConfigSelectionError(KernelError):
    """No tier had a configuration; the message says of each one why."""


class TuningError(KernelError):
    """Tuning was asked for where it may not or cannot be done."""


class CacheWarning(UserWarning):
    """A file of remembered configurations was damaged, or cannot be written."""
