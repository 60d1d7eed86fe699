"""Describes this machine: versions, CPU and its kernels, devices, memory, caches, login to the hub.

doctor                  tables to read, or to paste into an issue
doctor --format json    the same as JSON

The command does not open devices, use the network or print tokens.
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
