"""Says what this machine has: versions, CPU and its kernels, devices, memory, caches, the hub's login.

doctor                  tables to read, or to paste into an issue
doctor --format json    the same for a program

It opens no device, asks nothing of the network, and prints no token.
"""

from typing import Final

from absl import flags

from tapeline.cli import show
from tapeline.command._diagnosis import diagnose
from tapeline.command._diagnosis_text import diagnosis_text
from tapeline.command._format_flags import FormatFlag, put_json

FLAGS: Final = flags.FlagValues()

_FORMAT: Final = FormatFlag(FLAGS)


def main() -> None:
    """Prints the facts of this machine."""
    diagnosis = diagnose()
    if _FORMAT.is_json:
        put_json(diagnosis)
    else:
        show(diagnosis_text(diagnosis))
