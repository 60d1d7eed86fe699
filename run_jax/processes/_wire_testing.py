"""Messages between ranks, for tests of other packages."""

from run_jax.processes._wire import Handle, Written, read_written

__all__ = ["Handle", "Written", "read_written"]
