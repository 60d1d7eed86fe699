"""Errors of kernels: contracts, selection and tuning."""

from lang_core import TapelineError


class KernelError(TapelineError, RuntimeError):
    """Violation of a kernel's contract in its declaration, a call, or a remembered configuration."""


class MissingMethodError(KernelError, NotImplementedError):
    """A kernel lacks a method that the call needs."""


class ConfigSelectionError(KernelError):
    """All tiers lack a configuration; the message gives the reason of each."""


class TuningError(KernelError):
    """Tuning is not allowed or not possible here, or all candidates failed."""


class CacheWarning(UserWarning):
    """A file of configurations or recorded calls is damaged or cannot be written."""


class CallbackWarning(UserWarning):
    """A callback of the caller's failed; the call that it observes went on."""


class GradientWarning(UserWarning):
    """A kernel's own gradient could not be compared with that of its ``run``."""
