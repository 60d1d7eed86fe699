"""Running totals of a session's calls."""

import dataclasses


@dataclasses.dataclass(slots=True)
class Counters:
    """Running totals of a session; the cost of one step is a difference of two.

    Attributes:
        calls: calls of entry points.
        bytes_in: bytes copied from the host to the device.
        bytes_out: bytes copied from the device to the host.
        bytes_guarded: bytes copied on the device, so that a caller's tensor is not written or has a buffer of its own.
        module_seconds: seconds inside of the engine's calls of functions.
    """

    calls: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_guarded: int = 0
    module_seconds: float = 0.0

    @property
    def bytes_copied(self) -> int:
        """All bytes that were copied, in any direction."""
        return self.bytes_in + self.bytes_out + self.bytes_guarded
