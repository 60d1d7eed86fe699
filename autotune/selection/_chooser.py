"""Contract of an executor's chooser of configurations."""

from typing import Any, Protocol

from autotune.kernel import Invocation, Kernel


class ConfigChooser(Protocol):
    """Source of configurations for an executor."""

    def choose(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Any:
        """Returns the configuration for a call."""
        ...
