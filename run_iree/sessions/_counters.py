"""What a session moved, and what its calls took."""

import dataclasses


@dataclasses.dataclass(slots=True)
class Counters:
    """Running totals of a session; a caller that wants one step's cost takes the difference.

    Attributes:
        calls: of functions.
        bytes_in: copied from the host to the device.
        bytes_out: copied from the device to the host.
        bytes_guarded: copied on the device, to keep a caller's tensor from being written, or apart from another.
        module_seconds: inside of IREE's calls of functions; what a step takes beyond that is our own.
    """

    calls: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_guarded: int = 0
    module_seconds: float = 0.0

    @property
    def bytes_copied(self) -> int:
        """All bytes that were copied, wherever to."""
        return self.bytes_in + self.bytes_out + self.bytes_guarded
