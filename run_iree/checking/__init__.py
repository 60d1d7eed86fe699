"""Checks of CPU kernels: compares the results on this machine with the eager context."""

from run_iree.checking._check import KernelCheck, check_kernel
