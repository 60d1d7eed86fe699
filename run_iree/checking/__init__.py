"""Checks of CPU kernels: what one computes on this machine, against the eager context."""

from run_iree.checking._check import KernelCheck, check_kernel

__all__ = ["KernelCheck", "check_kernel"]
